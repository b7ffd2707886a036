"""The demonstration workflows, parsed."""

from __future__ import annotations

from planner.compiler.workflow import Workflow
from planner.data import demo_workflow_sources
from planner.importers.document import read_document
from planner.importers.native import parse_native


def demo_workflows() -> dict[str, Workflow]:
    """File name to workflow, in file-name order."""
    return {
        name: parse_native(read_document(text.encode(), filename=name))
        for name, text in demo_workflow_sources().items()
    }
