"""Which fleets a user may use and which a user may change."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from fleet.common.problems import forbidden, not_found
from fleet.models import Backend, Fleet
from fleet.selectors import default_fleet


def fleets_for(user: User) -> QuerySet[Fleet]:
    """A user's own fleets and the shared ones; all of them for staff."""
    return Fleet.objects.all() if user.is_staff else Fleet.objects.filter(Q(owner=None) | Q(owner=user))


def may_use(user: User, fleet: Fleet) -> bool:
    """Whether this fleet is the user's to see: the default one is everybody's, on the pages at least."""
    return fleet.is_default or user.is_staff or fleet.owner_id in (None, user.pk)


def fleet_for(user: User, name: str | None = None) -> Fleet:
    """A fleet by name, the default one without. Raises ApiProblem 404 and NoDefaultFleet."""
    wanted = default_fleet().name if name is None else name
    found = fleets_for(user).filter(name=wanted).first()
    if found is None:
        raise not_found("fleet")
    return found


def require_manager(user: User, fleet: Fleet) -> None:
    """Replicas of a shared fleet are changed by staff, those of an own fleet by its owner. Raises ApiProblem 403."""
    if not user.is_staff and fleet.owner_id != user.pk:
        raise forbidden("Only staff and the fleet's owner may change its replicas.")


def is_emulated(fleet: Fleet) -> bool:
    """Whether any figure of this fleet comes from the emulator."""
    return Backend.objects.filter(fleet=fleet, enabled=True, emulated=True).exists()
