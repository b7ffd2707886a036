"""JSON bodies, read strictly: what a database or a log could not keep is refused at the door, with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from fleet.common.pointers import json_pointer
from fleet.common.problems import ApiProblem, FieldProblem

MAX_DEPTH = 100
MAX_INTEGER = 2**63 - 1
_MAX_DIGITS = 400
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

Path = tuple[str | int, ...]


def parse_body(body: bytes) -> Any:
    """The value of a JSON body. Raises ApiProblem 400, with line and column or pointer, on anything else."""
    try:
        value = json.loads(body.decode(), parse_constant=_no_constant, parse_int=_integer)
    except UnicodeDecodeError as error:
        raise _bad("not_utf8", f"Byte {error.start} is not UTF-8.", "Send the body in UTF-8.") from None
    except json.JSONDecodeError as error:
        message = f"The body is not JSON: {error.msg[0].lower()}{error.msg[1:]}."
        raise _bad("bad_json", message, "Correct the text here.", line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise _too_deep("") from None
    for path, text in _strings(value, ()):
        if _UNSTORABLE.search(text):
            message = "The text holds a NUL or half of a surrogate pair."
            raise _bad("bad_text", message, "Remove that character.", pointer=json_pointer(path))
    return value


def _no_constant(name: str) -> float:
    raise _bad("bad_number", f"{name} is not a JSON number.", "Send a finite number, or null.")


def _integer(digits: str) -> int:
    value = int(digits) if len(digits) <= _MAX_DIGITS else MAX_INTEGER + 1
    if abs(value) > MAX_INTEGER:
        raise _bad("bad_number", f"The number {digits[:20]}... needs more than 64 bits.", "Send a smaller number.")
    return value


def _strings(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Every key and text with its path, depth first; a stack, so that depth costs no recursion."""
    stack: list[tuple[Path, Any]] = [(path, value)]
    while stack:
        at, item = stack.pop()
        if len(at) > MAX_DEPTH:
            raise _too_deep(json_pointer(at[:3]))
        if isinstance(item, str):
            yield at, item
        elif isinstance(item, dict):
            for key, member in item.items():
                yield at, key
                stack.append(((*at, key), member))
        elif isinstance(item, list):
            stack.extend(((*at, position), member) for position, member in enumerate(item))


def _too_deep(pointer: str) -> ApiProblem:
    return _bad("too_deep", f"The body nests deeper than {MAX_DEPTH} levels.", "Send a flatter value.", pointer=pointer)


def _bad(
    code: str, message: str, remedy: str, *, pointer: str = "", line: int | None = None, column: int | None = None
) -> ApiProblem:
    error = FieldProblem(code=code, message=message, remedy=remedy, pointer=pointer, line=line, column=column)
    return ApiProblem(400, "bad_request", message, errors=[error])
