from __future__ import annotations

import pytest

from planner.presenters.plans import (
    badges,
    changed_nodes,
    comparison,
    origin_notes,
    shares,
    variant_rows,
)
from tests.planner.pages.samples import bundle, chain, fork_join, problem


def test_a_row_a_variant_with_its_distance_from_the_first() -> None:
    found = bundle(chain(3))
    rows = variant_rows(found)

    assert len(rows) == len(found.variants) > 1
    assert [row.name for row in rows] == [f"π({i})" for i in range(len(rows))]
    assert rows[0].drop == ""
    assert rows[1].drop.startswith("−")
    assert {row.gap for row in rows} == {"optimal"}


def test_shares_add_up_and_are_ordered() -> None:
    for plan in bundle(chain(4)).variants:
        found = shares(plan)
        assert sum(share.share for share in found) == pytest.approx(1)
        assert [share.slot_s for share in found] == sorted((share.slot_s for share in found), reverse=True)
        assert found[0].model == plan.dominant_model


def test_badges_mark_what_differs_from_the_first_variant() -> None:
    workflow = fork_join()
    found = bundle(workflow)

    variants = badges(found, workflow)["variants"]
    assert isinstance(variants, list)
    assert all(not node["changed"] for node in variants[0].values())
    changed = {node for node, facts in variants[-1].items() if facts["changed"]}
    assert changed == set(changed_nodes(found.variants[0], found.variants[-1]))
    assert set(variants[0]) == {"source", "left", "end"}


def test_a_comparison_counts_and_marks_changed_nodes() -> None:
    workflow = chain(3)
    found = bundle(workflow)

    side_by_side = comparison(found, workflow)

    assert not any(row.cells[0].changed for row in side_by_side.nodes)
    last = len(found.variants) - 1
    marked = sum(row.cells[last].changed for row in side_by_side.nodes)
    assert marked == len(changed_nodes(found.variants[0], found.variants[last]))
    counts = next(row for row in side_by_side.facts if row.name == "Nodes changed")
    assert counts.cells[last].text == str(marked)
    tones = next(row for row in side_by_side.facts if row.name == "Estimated quality").cells
    assert tones[last].tone == "bad"


def test_notes_say_illustrative_and_emulated() -> None:
    notes = origin_notes(problem(chain(2)))

    assert notes["illustrative"] is True
    assert notes["emulated"] is True
    assert notes["time_scale"] == "10"
