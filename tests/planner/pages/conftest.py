"""A signed-in user on the demo fleet with the shipped profiles."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.models import Fleet
from fleet.services import seed_demo_fleet
from planner.services import ensure_profiles


@pytest.fixture
def fleet(db: None) -> Fleet:
    ensure_profiles()
    return seed_demo_fleet(18100, 10.0)


@pytest.fixture
def ann(fleet: Fleet) -> User:
    return User.objects.create_user("ann")


@pytest.fixture
def browser(ann: User) -> Client:
    client = Client()
    client.force_login(ann)
    return client


@pytest.fixture
def stranger(fleet: Fleet) -> Client:
    client = Client()
    client.force_login(User.objects.create_user("stranger"))
    return client
