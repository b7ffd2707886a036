"""Real instances: every process of `make up`, in a home and on ports of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from playwright.sync_api import Browser

from dyserve_site import demo
from dyserve_site.client import Client
from tests.chromium import launched

MANAGE = Path(settings.BASE_DIR) / "manage.py"


@pytest.fixture(scope="module")
def instance() -> Iterator[demo.Instance]:
    """One instance for the tests of a module, which must leave it running."""
    with demo.instance(MANAGE) as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture
def client(instance: demo.Instance) -> Iterator[Client]:
    with Client(instance.url, instance.token) as client:
        yield client
