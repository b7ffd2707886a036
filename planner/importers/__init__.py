"""Importers: any known document to a Workflow, with every problem at once."""

from planner.importers.problems import Problem, WorkflowRejected
from planner.importers.registry import Imported, import_workflow

__all__ = ["Imported", "Problem", "WorkflowRejected", "import_workflow"]
