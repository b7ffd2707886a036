"""`python -m fleet.emulator CONFIG.json`: serves the configured replicas until it is told to stop.

Prints one line of JSON, {"ready": {name: url}}, once all replicas listen. Exit status 2: the configuration is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleet.emulator.config import ConfigError, load_config
from fleet.emulator.server import serve


def _announce(urls: Mapping[str, str]) -> None:
    sys.stdout.write(json.dumps({"ready": dict(urls)}) + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fleet.emulator", description="Serve emulated vLLM replicas.")
    parser.add_argument("config", type=Path, help="the configuration, a JSON file")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(serve(load_config(options.config), _announce))
    except ConfigError as error:
        sys.stderr.write(f"emulator: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
