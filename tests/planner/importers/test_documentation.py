from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.importers.patterns import UnsafePattern, check_pattern
from planner.importers.registry import import_workflow

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "workflow-format.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
CODE_WORDS = re.compile(
    r'(?:code=|report\(|_stop\(|_report\(|_made\(fault, |_at\([^"\n]*|_problem\()\s*f?"([a-z_0-9]+)"'
)


def test_every_example_is_a_workflow() -> None:
    assert len(EXAMPLES) == 1
    workflow = import_workflow(EXAMPLES[0].encode()).workflow
    assert workflow.edges == (("sort", "contents"), ("sort", "write"), ("contents", "page"), ("write", "page"))
    assert workflow.output == "page"


def test_the_pattern_table_is_true() -> None:
    rows = re.findall(r"^\| `(\^.*?)` \| `(.*?)` \| ", TEXT, re.MULTILINE)
    assert len(rows) == 4
    for accepted, refused in rows:
        check_pattern(accepted.replace("\\|", "|"))
        with pytest.raises(UnsafePattern):
            check_pattern(refused.replace("\\|", "|"))


def test_every_code_of_the_importers_is_listed() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "planner" / "importers").glob("*.py")]
    codes = {code for source in sources for code in CODE_WORDS.findall(source)} - {"skill", "idle"}
    assert len(codes) > 40
    assert {code for code in codes if f"`{code}`" not in TEXT} == set()
