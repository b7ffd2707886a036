"""Everything that changes workflows, profiles and plans; bundles have a module of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils.text import slugify

from planner.bundling import (
    CompiledVersion,
    compile_version,
    notify_bundle,
    prepare_variants,
    requeue_lost_bundles,
)
from planner.compiler.profile import ProfileSet
from planner.compiler.profile_json import profiles_to_json
from planner.data import load_profiles
from planner.importers.native import content_digest, dump_native
from planner.importers.registry import Imported, import_workflow
from planner.models import ProfileVersion, Workflow, WorkflowVersion
from planner.options import PlanOptions

__all__ = [
    "CompiledVersion",
    "PlanOptions",
    "StoredWorkflow",
    "activate_profiles",
    "compile_version",
    "ensure_profiles",
    "inline_version",
    "notify_bundle",
    "prepare_variants",
    "record_profiles",
    "requeue_lost_bundles",
    "store_workflow",
]

_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWorkflow:
    """`created`: a new version was stored; otherwise this very content was there already."""

    workflow: Workflow
    version: WorkflowVersion
    created: bool


# --- Workflows -------------------------------------------------------------------------------------------------------


def store_workflow(
    *,
    owner: AbstractBaseUser,
    data: bytes,
    filename: str = "",
    format: str | None = None,
    skills: Mapping[str, str] | None = None,
    name: str | None = None,
) -> StoredWorkflow:
    """Stores a document under its name: the same content is recognised, other content is the next version.

    Raises WorkflowRejected with every problem; then nothing is stored.
    """
    imported = import_workflow(data, filename=filename, format=format, skills=skills)
    if name:
        imported = replace(imported, workflow=replace(imported.workflow, name=name[:200]))
    for _ in range(_TRIES - 1):
        try:
            return _store(owner, imported, data, filename)
        except IntegrityError:
            # Somebody stored a workflow of this name at the same moment: it is found now.
            continue
    return _store(owner, imported, data, filename)


@transaction.atomic
def _store(owner: AbstractBaseUser, imported: Imported, data: bytes, filename: str) -> StoredWorkflow:
    workflow = _named(owner, imported.workflow.name)
    digest = content_digest(imported.workflow)
    known = workflow.versions.filter(digest=digest).first()
    if known is None:
        last = workflow.versions.aggregate(last=Max("number"))["last"] or 0
        version = WorkflowVersion(workflow=workflow, number=last + 1, **_version_fields(owner, imported, digest))
        version.source, version.source_name = data.decode("utf-8-sig"), filename[:255]
        version.save()
    workflow.description, workflow.archived = imported.workflow.description, False
    workflow.save(update_fields=["description", "archived"])
    return StoredWorkflow(workflow=workflow, version=known or version, created=known is None)


def _named(owner: AbstractBaseUser, name: str) -> Workflow:
    """The owner's workflow of this name, locked so that two uploads get two numbers."""
    workflow = Workflow.objects.select_for_update().filter(owner_id=owner.pk, name=name).first()
    if workflow is not None:
        return workflow
    return Workflow.objects.create(owner_id=owner.pk, name=name, slug=_free_slug(owner, name))


def _free_slug(owner: AbstractBaseUser, name: str) -> str:
    """Two names may make one slug: the later one gets a number."""
    base = slugify(name)[:70] or "workflow"
    taken = set(Workflow.objects.filter(owner_id=owner.pk, slug__startswith=base).values_list("slug", flat=True))
    number = 1
    slug = base
    while slug in taken:
        number += 1
        slug = f"{base}-{number}"
    return slug


def _version_fields(owner: AbstractBaseUser, imported: Imported, digest: str) -> dict[str, Any]:
    return {
        "owner_id": owner.pk,
        "document": dump_native(imported.workflow),
        "digest": digest,
        "source_format": imported.format,
        "notes": [note.to_json() for note in imported.notes],
        "node_count": len(imported.workflow.nodes),
    }


def inline_version(*, owner: AbstractBaseUser, data: bytes) -> WorkflowVersion:
    """The version of a DAG that a run brought along; one row per owner and content. Raises WorkflowRejected."""
    imported = import_workflow(data)
    digest = content_digest(imported.workflow)
    version, _ = WorkflowVersion.objects.get_or_create(
        owner_id=owner.pk, digest=digest, workflow=None, defaults=_version_fields(owner, imported, digest)
    )
    return version


# --- Profiles --------------------------------------------------------------------------------------------------------


def ensure_profiles() -> ProfileVersion:
    """The active profiles; the shipped, illustrative ones become active when there are none at all."""
    active = ProfileVersion.objects.filter(active=True).first()
    if active is not None:
        return active
    last = ProfileVersion.objects.order_by("-version").first()
    if last is not None:
        activate_profiles(last)
        return last
    return record_profiles(load_profiles(), name="shipped")


def record_profiles(profiles: ProfileSet, *, name: str, activate: bool = True) -> ProfileVersion:
    """A new version of the profiles; earlier ones stay as they are. The same content is the same version."""
    with transaction.atomic():
        known = ProfileVersion.objects.select_for_update().filter(digest=profiles.digest).first()
        last = ProfileVersion.objects.aggregate(last=Max("version"))["last"] or 0
        row = known or ProfileVersion.objects.create(
            name=name[:100],
            version=last + 1,
            document=profiles_to_json(profiles),
            digest=profiles.digest,
            illustrative=profiles.illustrative,
        )
        if activate:
            activate_profiles(row)
    return row


def activate_profiles(row: ProfileVersion) -> None:
    """Plans made from now on use this version; plans that exist keep theirs."""
    with transaction.atomic():
        ProfileVersion.objects.filter(active=True).exclude(pk=row.pk).update(active=False)
        ProfileVersion.objects.filter(pk=row.pk).update(active=True)
    row.active = True
