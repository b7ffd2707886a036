"""The first login, as it travels from `prepare` to `up` and lies in the home folder (mode 0600)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """`current` is False once the password was changed in the admin."""

    username: str
    password: str
    token: str
    current: bool = True

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Credentials:
        return cls(**json.loads(text))
