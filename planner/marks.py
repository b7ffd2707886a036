"""How modelled figures are marked: an emulator's rates, and profiles that nobody measured on this fleet."""

from __future__ import annotations

from ninja import Schema
from pydantic import Field

from fleet.common.access import is_emulated
from fleet.models import Fleet
from planner.models import PlanBundle, ProfileVersion


class ProfileMark(Schema):
    version: str | None
    illustrative: bool = Field(description="Not measured on this fleet.")


class Marks:
    """The marks of one response; each is read once, however many rows carry it."""

    def __init__(self) -> None:
        self._emulated: dict[int, bool] = {}
        self._profiles: dict[str | None, ProfileMark] = {}

    def emulated(self, fleet: Fleet) -> bool:
        if fleet.pk not in self._emulated:
            self._emulated[fleet.pk] = is_emulated(fleet)
        return self._emulated[fleet.pk]

    def profiles(self, bundle: PlanBundle | None) -> ProfileMark:
        """Of the profiles that the bundle was planned with; of the active ones without a bundle."""
        version = None if bundle is None else bundle.versions.get("profiles")
        if version not in self._profiles:
            self._profiles[version] = profile_mark(version)
        return self._profiles[version]


def profile_mark(version: str | None = None) -> ProfileMark:
    """The mark of a profile set by its own version, of the active one without. What is not known counts as invented."""
    chosen = {"active": True} if version is None else {"document__version": version}
    rows = ProfileVersion.objects.filter(**chosen).order_by("-version")
    found = rows.values_list("document__version", "illustrative").first()
    if found is None:
        return ProfileMark(version=version, illustrative=True)
    return ProfileMark(version=found[0], illustrative=found[1])
