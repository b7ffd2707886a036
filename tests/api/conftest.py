"""Users with tokens, the demo fleet and the shipped profiles, on the suite's database and a real Valkey.

Tests whose requests read in threads of their own ask for `transactional_db` besides.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from django.contrib.auth.models import User

from dyserve_site.tokens import create_token
from fleet.common.scopes import Scope
from fleet.models import Fleet
from fleet.services import seed_demo_fleet
from planner.services import ensure_profiles
from tests.api.samples import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    user: User
    token: str

    @property
    def api(self) -> Caller:
        return Caller(self.token)


def person(name: str, *scopes: Scope, is_staff: bool = False) -> Person:
    user = User.objects.create_user(name, is_staff=is_staff)
    return Person(user=user, token=create_token(user, "test", scopes or [Scope.ADMIN])[1])


@pytest.fixture
def fleet(db: None) -> Fleet:
    ensure_profiles()
    return seed_demo_fleet(18100, 100.0)


@pytest.fixture
def ann(fleet: Fleet, valkey: str) -> Person:
    return person("ann")


@pytest.fixture
def bob(fleet: Fleet, valkey: str) -> Person:
    return person("bob")


@pytest.fixture
def operator(fleet: Fleet, valkey: str) -> Person:
    return person("operator", is_staff=True)
