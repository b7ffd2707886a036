"""The configuration file: read whole, or refused with the place and the remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.emulator.config import DEFAULT_REJECT, ConfigError, load_config, parse_config, to_json
from fleet.serving.roofline import H200, QWEN35_27B, kv_capacity_tokens

REPLICA = {"name": "27b-1", "model": "qwen3.5-27b"}


def _config(**changes: Any) -> dict[str, Any]:
    return {"replicas": [REPLICA], **changes}


def test_defaults_come_from_the_roofline() -> None:
    config = parse_config(_config())
    (replica,) = config.replicas
    assert replica.kv_capacity == kv_capacity_tokens(H200, QWEN35_27B, replica.max_num_seqs)
    assert (config.time_scale, config.reject_of("qwen3.5-27b"), config.mean_of("text")) == (1, DEFAULT_REJECT, 380)


def test_a_whole_file_survives_a_round_trip(tmp_path: Path) -> None:
    replica = {**REPLICA, "port": 8101, "max_num_seqs": 32, "max_queued": 8, "kv_tokens": 90000, "max_model_len": 8192}
    data = _config(
        replicas=[replica, {"name": "4b-1", "model": "qwen3.5-4b", "port": 8102}],
        time_scale=10,
        seed=3,
        reject_probability={"qwen3.5-27b": 0.1},
        mean_output_tokens={"text": 100},
        sigma=0.2,
        request_metrics=False,
    )
    path = tmp_path / "emulator.json"
    path.write_text(json.dumps(data))
    config = load_config(path)
    assert parse_config(json.loads(json.dumps(to_json(config)))) == config
    assert (config.reject_of("qwen3.5-27b"), config.mean_of("text"), config.mean_of("json")) == (0.1, 100, 160)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ([], "expected an object"),
        ({}, "replicas missing"),
        ({"replicas": []}, "at least one"),
        ({"replicas": {}}, "configuration.replicas: expected list"),
        ({"replicas": [7]}, r"replicas\[0\]: expected an object"),
        ({"replicas": [{"name": "x"}]}, "model missing"),
        ({"replicas": [{**REPLICA, "prot": 1}]}, "unknown prot; known: .*port"),
        ({"replicas": [{**REPLICA, "port": "1"}]}, "port: expected int"),
        ({"replicas": [{**REPLICA, "port": True}]}, "port: expected int"),
        ({"replicas": [{**REPLICA, "port": 70000}]}, "27b-1: port"),
        ({"replicas": [{**REPLICA, "name": ""}]}, "needs a name"),
        ({"replicas": [{**REPLICA, "model": "gpt"}]}, "27b-1: .*qwen3.5-4b"),
        ({"replicas": [{**REPLICA, "hardware": "H999"}]}, "27b-1: .*H200"),
        ({"replicas": [{**REPLICA, "max_num_seqs": 0}]}, "max_num_seqs"),
        ({"replicas": [{**REPLICA, "kv_tokens": 100}]}, "raise kv_tokens"),
        ({"replicas": [REPLICA, REPLICA]}, "same name twice: 27b-1"),
        (_config(replicas=[{**REPLICA, "port": 81}, {**REPLICA, "name": "b", "port": 81}]), "same address twice"),
        (_config(time_scale=0), "time_scale"),
        (_config(sigma=3), "sigma"),
        (_config(reject_probability={"m": 1.5}), "reject_probability of m"),
        (_config(reject_probability={"m": "x"}), "reject_probability.m: expected a number"),
        (_config(mean_output_tokens={"prose": 5}), "prose"),
        (_config(mean_output_tokens={"text": 0}), "at least 1"),
    ],
)
def test_what_cannot_be_used_is_named(data: Any, place: str) -> None:
    with pytest.raises(ConfigError, match=place):
        parse_config(data)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        load_config(tmp_path / "nowhere.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ConfigError, match=r"bad\.json"):
        load_config(tmp_path / "bad.json")
