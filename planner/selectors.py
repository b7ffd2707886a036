"""Everything that reads workflows, profiles and plans, as rows and as the compiler's values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, cast

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Count, Max, QuerySet
from django.db.models.fields.json import KT

from fleet.models import Fleet
from fleet.selectors import catalog_for
from fleet.serving.catalog import Catalog
from planner.compiler.bundle import from_positions
from planner.compiler.limits import Limits
from planner.compiler.plan import Bundle, BundleKind, Plan
from planner.compiler.policies import POLICIES
from planner.compiler.pricing import fleet_pricing
from planner.compiler.problem import PlanningProblem, policies_digest
from planner.compiler.profile import ProfileSet
from planner.compiler.profile_json import profiles_from_json
from planner.compiler.workflow import Workflow as WorkflowValue
from planner.errors import NoActiveProfiles
from planner.importers.document import document_of
from planner.importers.fleet_check import check_against
from planner.importers.native import parse_native
from planner.importers.problems import Problem
from planner.models import PlanBundle, PlanVariant, ProfileVersion, Workflow, WorkflowVersion
from planner.options import PlanOptions

NO_PROMPTS: Mapping[str, int] = MappingProxyType({})


# --- Workflows -------------------------------------------------------------------------------------------------------


def workflows_for(user: AbstractBaseUser, *, archived: bool = False) -> QuerySet[Workflow]:
    """A user's own workflows, by name, with `version_count` and `last_number`."""
    return (
        Workflow.objects.filter(owner_id=user.pk, archived=archived)
        .annotate(version_count=Count("versions"), last_number=Max("versions__number"))
        .order_by("name", "id")
    )


def versions_of(workflow: Workflow) -> QuerySet[WorkflowVersion]:
    """Newest first, without the uploaded text."""
    return workflow.versions.defer("source").order_by("-number")


def version_for(user: AbstractBaseUser, workflow_id: int, number: int | None = None) -> WorkflowVersion:
    """One version (the latest by default) of a user's workflow. Raises WorkflowVersion.DoesNotExist."""
    # As a primary key any number can be asked for; compared with a foreign key a huge one is the database's error.
    own = Workflow.objects.filter(pk=workflow_id, owner_id=user.pk)
    versions = WorkflowVersion.objects.filter(workflow__in=own)
    if number is not None:
        return versions.get(number=number)
    latest = versions.order_by("-number").first()
    if latest is None:
        raise WorkflowVersion.DoesNotExist
    return latest


def workflow_value(version: WorkflowVersion) -> WorkflowValue:
    """The version as the compiler's value; parsed once per content and process."""
    return _parsed(_Content(digest=version.digest, document=version.document))


def name_problems(workflow: WorkflowValue, *, fleet: Fleet, tools: Collection[str]) -> tuple[Problem, ...]:
    """Skills, model classes, policies and tools of a workflow that do not exist here. Raises NoActiveProfiles."""
    models = [model.name for model in catalog_for(fleet).served_models()]
    return check_against(workflow, active_profiles().skills, models, tuple(POLICIES), tools)


def workflow_of_document(document: Mapping[str, Any]) -> WorkflowValue:
    """A stored canonical document as the compiler's value."""
    return parse_native(document_of(document))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """A cache key that is its digest and carries what the digest stands for."""

    digest: str
    document: Mapping[str, Any] = field(compare=False, repr=False)


@lru_cache(maxsize=512)
def _parsed(content: _Content) -> WorkflowValue:
    return workflow_of_document(content.document)


# --- Profiles --------------------------------------------------------------------------------------------------------


def active_profiles() -> ProfileSet:
    """What planning uses now; read once per version and process. Raises NoActiveProfiles."""
    found = ProfileVersion.objects.filter(active=True).values_list("pk", "digest").first()
    if found is None:
        raise NoActiveProfiles
    return profiles_of(*found)


@lru_cache(maxsize=8)
def profiles_of(pk: int, digest: str) -> ProfileSet:
    """The profiles of one version; `digest` makes the cache safe against a reused key. Raises DoesNotExist."""
    return profiles_from_json(ProfileVersion.objects.get(pk=pk, digest=digest).document)


def active_profile_version() -> ProfileVersion | None:
    """The active version's row without its document, for pages that name it."""
    return ProfileVersion.objects.filter(active=True).defer("document").first()


# --- Plans -----------------------------------------------------------------------------------------------------------


def problem_for(
    version: WorkflowVersion,
    fleet: Fleet,
    options: PlanOptions,
    known_prompt_tokens: Mapping[str, int] | None = None,
) -> PlanningProblem:
    """The planning problem of a version on a fleet as both are now."""
    return chosen_problem(
        workflow_value(version), catalog_for(fleet), active_profiles(), options, known_prompt_tokens or NO_PROMPTS
    )


def chosen_problem(
    workflow: WorkflowValue,
    catalog: Catalog,
    profiles: ProfileSet,
    options: PlanOptions,
    known_prompt_tokens: Mapping[str, int] = NO_PROMPTS,
) -> PlanningProblem:
    """The planning problem under a request's options."""
    return PlanningProblem(
        workflow=workflow,
        catalog=catalog,
        profiles=profiles,
        weights=options.weights,
        effort=options.effort,
        known_prompt_tokens=known_prompt_tokens,
        limits=options.limits,
        pricing=fleet_pricing(catalog) if options.bundle == "priced" else None,
    )


def options_of_bundle(bundle: PlanBundle, workflow: WorkflowValue) -> PlanOptions:
    """What the bundle was asked for; its limits name the nodes of `workflow`, which is of its structure."""
    stored = bundle.request.get("options", {}).get("limits")
    options = PlanOptions.of(
        effort=bundle.effort, weights=bundle.weights, bundle=bundle.kind, levels=bundle.levels, limits=stored
    )
    if not (options.limits.pinned or options.limits.forbidden):
        return options
    return replace(options, limits=_renamed(options.limits, workflow_of_document(bundle.request["document"]), workflow))


def _renamed(limits: Limits, source: WorkflowValue, target: WorkflowValue) -> Limits:
    """`*` and whatever else names no node stays as it is."""
    names = {node.id: other.id for node, other in zip(source.nodes, target.nodes, strict=True)}
    return replace(
        limits,
        pinned={names.get(node, node): patterns for node, patterns in limits.pinned.items()},
        forbidden={names.get(node, node): patterns for node, patterns in limits.forbidden.items()},
    )


def outdated_bundles() -> int:
    """How many bundles no request finds any more, since profiles, fleet or policies are others now."""
    made_of = (KT("request__profiles__digest"), KT("versions__catalog"), KT("versions__policies"))
    found = PlanBundle.objects.order_by().values_list("fleet", *made_of).annotate(Count("pk"))
    profiles = active_profile_version()
    digest = profiles.digest if profiles is not None else None
    current = {
        (fleet.pk, digest, catalog_for(fleet).version, policies_digest(tuple(POLICIES.values())))
        for fleet in Fleet.objects.all()
    }
    return sum(count for *parts, count in found if tuple(parts) not in current)


def bundle_value(bundle: PlanBundle, workflow: WorkflowValue) -> Bundle:
    """The bundle bound to a workflow of its structure; incomplete while (or because) only pi(0) is known.

    Raises ValueError when the workflow has another structure.
    """
    variants = tuple(variant_value(variant, workflow) for variant in bundle.variants.order_by("index"))
    kind = cast("BundleKind", bundle.kind)
    return Bundle(key=bundle.key, variants=variants, complete=bundle.state == PlanBundle.State.READY, kind=kind)


def variant_value(variant: PlanVariant, workflow: WorkflowValue) -> Plan:
    return from_positions(Plan.from_json(variant.plan), workflow)
