"""Uploads: a document is previewed before it is saved; a bad one is never stored and says why, line by line."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from planner.errors import NoActiveProfiles
from planner.importers import Imported, import_workflow
from planner.importers.native import content_digest
from planner.importers.problems import WorkflowRejected
from planner.importers.skills import SKILL_WORDS
from planner.importers.values import MAX_BYTES, too_large
from planner.models import Workflow, WorkflowVersion
from planner.presenters.uploads import preview_of, problem_rows
from planner.selectors import active_profiles
from planner.services import store_workflow
from planner.views.access import signed_in

SKILL_PREFIX = "skill."
MAX_NAME = 255
UNPROCESSABLE = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """What the form carries: a file, or else the text of the editor (whose line ends the browser made CRLF)."""

    data: bytes
    filename: str
    skills: dict[str, str]
    size: int

    @property
    def empty(self) -> bool:
        return not self.data.strip()


def _upload(request: HttpRequest) -> Upload:
    skills = {
        name.removeprefix(SKILL_PREFIX): value
        for name, value in request.POST.items()
        if name.startswith(SKILL_PREFIX) and isinstance(value, str)
    }
    file = request.FILES.get("file")
    if isinstance(file, UploadedFile) and file.size:
        return Upload(data=file.read(), filename=(file.name or "")[:MAX_NAME], skills=skills, size=file.size)
    data = request.POST.get("text", "").replace("\r\n", "\n").encode("utf-8", errors="surrogatepass")
    filename = request.POST.get("filename", "").replace("\x00", "")[:MAX_NAME]
    return Upload(data=data, filename=filename, skills=skills, size=len(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was made of an upload, and the skills by node that overrule the rule."""

    imported: Imported
    skills: dict[str, str]


def _read(upload: Upload) -> Reading:
    """Raises WorkflowRejected. Chosen skills that the rule chooses too, or of nodes that are gone, change nothing."""
    if upload.size > MAX_BYTES:
        raise WorkflowRejected([too_large(upload.size)])
    imported = import_workflow(upload.data, filename=upload.filename)
    derived = {node.id: node.skill for node in imported.workflow.llm_nodes}
    chosen = {node: skill for node, skill in upload.skills.items() if derived.get(node, skill) != skill}
    if chosen:
        imported = import_workflow(upload.data, filename=upload.filename, skills=chosen)
    return Reading(imported=imported, skills=chosen)


@login_required
@require_POST
def preview_upload(request: HttpRequest) -> HttpResponse:
    """A fragment: the problems, or the DAG with notes and what saving would do. Stores nothing."""
    upload = _upload(request)
    if upload.empty:
        return render(request, "planner/_preview_empty.html")
    try:
        reading = _read(upload)
    except WorkflowRejected as error:
        return render(request, "planner/_problems.html", {"problems": problem_rows(error.problems, upload.data)})
    preview = preview_of(reading.imported, _known_skills(), reading.skills)
    context = {"preview": preview, **_would_store(request, reading.imported)}
    return render(request, "planner/_preview.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def upload(request: HttpRequest) -> HttpResponse:
    """The form; posting it stores the workflow and opens it."""
    if request.method == "GET":
        return render(request, "planner/upload.html", {"max_bytes": MAX_BYTES})
    given = _upload(request)
    try:
        skills = _read(given).skills
        stored = store_workflow(
            owner=signed_in(request), data=given.data, filename=given.filename, skills=skills or None
        )
    except WorkflowRejected as error:
        context = {
            "max_bytes": MAX_BYTES,
            "problems": problem_rows(error.problems, given.data),
            "text": given.data.decode("utf-8", errors="replace")[: 2 * MAX_BYTES],
            "filename": given.filename,
        }
        return render(request, "planner/upload.html", context, status=UNPROCESSABLE)
    version = f"{stored.workflow.name}, version {stored.version.number}"
    if stored.created:
        messages.success(request, f"Saved {version}.")
    else:
        messages.info(request, f"This content is already stored as {version}.")
    return redirect("planner:version", stored.version.pk)


def _known_skills() -> tuple[str, ...]:
    try:
        return active_profiles().skills
    except NoActiveProfiles:
        return tuple(SKILL_WORDS)


def _would_store(request: HttpRequest, imported: Imported) -> dict[str, object]:
    """`known`: the version that holds this content already; `next_number`: the number that saving would give."""
    existing = Workflow.objects.filter(owner_id=signed_in(request).pk, name=imported.workflow.name).first()
    if existing is None:
        return {"existing": None, "known": None, "next_number": 1}
    versions = WorkflowVersion.objects.filter(workflow=existing).defer("document", "source")
    last = versions.order_by("-number").first()
    return {
        "existing": existing,
        "known": versions.filter(digest=content_digest(imported.workflow)).first(),
        "next_number": (last.number or 0) + 1 if last else 1,
    }
