"""Serves plotly.min.js from the installed wheel, as /static/vendor/plotly.min.js: no CDN, no vendored copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage, Storage


class PlotlyFinder(BaseFinder):
    name = "vendor/plotly.min.js"

    def check(self, **_: Any) -> list[Any]:
        return []

    def find(self, path: str, find_all: bool = False, **_: Any) -> Any:
        found = str(settings.PLOTLY_JS) if path == self.name else None
        if find_all:
            return [found] if found else []
        return found

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        source = Path(settings.PLOTLY_JS)
        storage = FileSystemStorage(location=source.parent)
        storage.prefix = "vendor"  # type: ignore[attr-defined]  # collectstatic and WhiteNoise read it from the storage
        yield source.name, storage
