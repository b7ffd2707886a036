"""The run form's fields as values, typed by the workflow's inputs; templates/components/run_form.html shows them.

Field names of what the form posts: `input.<name>` for each input, `deadline_s`, `effort`, `controller`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from planner.compiler.weights import DEFAULT_EFFORT
from planner.compiler.workflow import InputSpec, Workflow
from planner.importers.json_text import parse_json
from planner.importers.problems import WorkflowRejected

PREFIX = "input."
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class InputField:
    """`control` is text, number, integer, boolean or json; `value` what it holds, `error` what was wrong with it."""

    id: str
    field: str
    name: str
    control: str
    required: bool
    value: str
    description: str
    error: str = ""

    @property
    def rows(self) -> int:
        return min(8, max(2, self.value.count("\n") + 1 + len(self.value) // 60))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunForm:
    """`problems` are those that belong to no field. `plan`: options of the plan that is shown beside the form, as an
    address writes them; None where there is no such plan, and the form asks for the effort itself.
    """

    inputs: tuple[InputField, ...]
    deadline_s: str
    deadline_error: str
    effort: str
    controller: str
    problems: tuple[str, ...] = ()
    plan: str | None = None


def run_form(
    workflow: Workflow,
    posted: Mapping[str, str] | None = None,
    errors: Mapping[str, str] = _NOTHING,
    problems: tuple[str, ...] = (),
    plan: str | None = None,
) -> RunForm:
    """The form as first shown, or as it was posted, with its errors by field name (`input.topic`, `deadline_s`)."""
    given = posted if posted is not None else _NOTHING
    default_deadline = "" if workflow.deadline_s is None else f"{workflow.deadline_s:g}"
    return RunForm(
        inputs=tuple(_field(index, spec, posted, errors) for index, spec in enumerate(workflow.inputs)),
        deadline_s=given.get("deadline_s", default_deadline),
        deadline_error=errors.get("deadline_s", ""),
        effort=given.get("effort", f"{DEFAULT_EFFORT:g}"),
        controller=given.get("controller", ""),
        problems=problems,
        plan=given.get("plan", plan),
    )


def _field(index: int, spec: InputSpec, posted: Mapping[str, str] | None, errors: Mapping[str, str]) -> InputField:
    field = PREFIX + spec.name
    value = _written(spec.type, spec.default) if posted is None else posted.get(field, "")
    return InputField(
        id=f"input-{index}",
        field=field,
        name=spec.name,
        control="text" if spec.type == "string" else spec.type,
        required=spec.required,
        value=value,
        description=spec.description,
        error=errors.get(field, ""),
    )


def _written(kind: str, default: Any) -> str:
    if default is None:
        return ""
    if kind == "string":
        return str(default)
    return json.dumps(default, ensure_ascii=False, indent=2 if kind == "json" else None)


def read_inputs(workflow: Workflow, posted: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """(inputs, errors by field name) of a posted form. Empty optional fields are left out; the service validates."""
    inputs: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for spec in workflow.inputs:
        field = PREFIX + spec.name
        text = posted.get(field, "").replace("\r\n", "\n")
        if spec.type == "string" and (text or spec.required):
            inputs[spec.name] = text
        elif text.strip():
            try:
                inputs[spec.name] = _read(spec.type, text.strip())
            except (ValueError, WorkflowRejected):
                errors[field] = _EXPECTED[spec.type]
        elif spec.required:
            errors[field] = "This input is required."
    return inputs, errors


_EXPECTED = {
    "number": "Enter a number, such as 0.5.",
    "integer": "Enter a whole number.",
    "boolean": "Choose true or false.",
    "json": 'Enter JSON, such as [1, 2] or {"a": true}.',
}


def _read(kind: str, text: str) -> Any:
    if kind == "integer":
        return int(text)
    if kind == "number":
        return _finite(float(text))
    if kind == "boolean":
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    return parse_json(text)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(value)
    return value
