"""What an importer derived, dropped or renamed: a person should be able to see every choice that was made for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One choice; `code` is stable, `node` is empty when it concerns the whole workflow."""

    code: str
    message: str
    node: str = ""

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}
