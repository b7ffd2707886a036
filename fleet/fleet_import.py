"""Brings the database to what a fleet file says: adds and changes, removes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import models, transaction

from fleet.fleet_file import BackendPart, FleetFile, FleetFileInvalid, ModelPart, RatesPart, ReplicaPart
from fleet.models import Backend, Fleet, ModelClass, Replica
from fleet.selectors import active_rates, rates_value
from fleet.services import audit, check_address, record_rates

Row = TypeVar("Row", bound=models.Model)


@dataclass(slots=True)
class Imported:
    """What was done, in words, and the backends whose rates are still to be measured."""

    fleet: Fleet
    done: list[str] = field(default_factory=list)
    to_calibrate: list[Backend] = field(default_factory=list)


def import_fleet(parsed: FleetFile, by: AbstractBaseUser | None = None) -> Imported:
    """All of it or nothing. Raises FleetFileInvalid for what contradicts the database or the allowed networks."""
    with transaction.atomic():
        return _Import(parsed, by).run()


class _Import:
    def __init__(self, parsed: FleetFile, by: AbstractBaseUser | None) -> None:
        self.parsed, self.by = parsed, by
        self.problems: dict[str, str] = {}

    def run(self) -> Imported:
        if self.parsed.default:
            Fleet.objects.filter(is_default=True).exclude(name=self.parsed.fleet).update(is_default=False)
        fleet, _ = Fleet.objects.get_or_create(name=self.parsed.fleet)
        self.imported = Imported(fleet)
        if self.parsed.default and not fleet.is_default:
            self._put("", fleet, is_default=True)
        for i, model in enumerate(self.parsed.models):
            self._model(f"/models/{i}", model)
        for i, backend in enumerate(self.parsed.backends):
            self._backend(f"/backends/{i}", backend)
        if self.problems:
            raise FleetFileInvalid(self.problems)
        return self.imported

    def _model(self, place: str, part: ModelPart) -> None:
        row = ModelClass.objects.filter(name=part.name).first() or ModelClass(name=part.name)
        given = part.model_dump(exclude={"name", "price_in", "price_out"})
        prices = {
            name: part.default_price if getattr(part, name) is None else getattr(part, name)
            for name in ("price_in", "price_out")
        }
        self._put(place, row, **given, **prices)

    def _backend(self, place: str, part: BackendPart) -> None:
        model = ModelClass.objects.filter(name=part.model).first()
        if model is None:
            self.problems[f"{place}/model"] = f"there is no model class {part.model}: describe it under models"
            return
        row = Backend.objects.filter(name=part.name).first() or Backend(name=part.name, fleet=self.imported.fleet)
        if row.fleet_id != self.imported.fleet.pk:
            self.problems[f"{place}/name"] = f"{part.name} belongs to the fleet {row.fleet}: give it another name"
            return
        given = part.model_dump(include={"served_name", "hardware", "max_num_seqs"})
        if not self._put(place, row, model_class=model, **given):
            return
        for k, replica in enumerate(part.replicas):
            self._replica(f"{place}/replicas/{k}", row, replica)
        self._rates(row, part)

    def _replica(self, place: str, backend: Backend, part: ReplicaPart) -> None:
        row = Replica.objects.filter(name=part.name).first() or Replica(name=part.name, backend=backend)
        if row.backend_id != backend.pk:
            self.problems[f"{place}/name"] = f"{part.name} belongs to the backend {row.backend}: give it another name"
            return
        refused = check_address(part.url)
        if refused:
            self.problems[f"{place}/url"] = " ".join(refused["url"])
            return
        self._put(place, row, url=part.url.rstrip("/"), api_key_env=part.api_key_env)

    def _rates(self, backend: Backend, part: BackendPart) -> None:
        """Figures that were recorded before are not again, nor put in use: measured ones may have taken their place."""
        active = active_rates(backend)
        if isinstance(part.rates, RatesPart):
            wanted = part.rates.value()
            if not any(replace(rates_value(row), version=wanted.version) == wanted for row in backend.rates.all()):
                stored = record_rates(backend, wanted, note="from a fleet file")
                self.imported.done.append(f"rates of {backend.name} are version {stored.version}")
        elif part.rates == "calibrate" and (active is None or active.source != "calibrated"):
            self.imported.to_calibrate.append(backend)

    def _put(self, place: str, row: models.Model, **values: Any) -> bool:
        """Saves a row that is new or differs. False, and a problem by field, for what the row refuses."""
        new = row.pk is None
        changed = [name for name, value in values.items() if getattr(row, name, None) != value] if not new else []
        if not new and not changed:
            return True
        for name, value in values.items():
            setattr(row, name, value)
        try:
            row.full_clean()
        except ValidationError as error:
            for name, messages in error.message_dict.items():
                self.problems[f"{place}/{name}"] = " ".join(messages)
            return False
        row.save()
        done = "added" if new else f"changed ({', '.join(changed)})"
        self.imported.done.append(f"{row._meta.verbose_name} {row} {done}")
        audit(self.by, row, f"From a fleet file: {done}.")
        return True
