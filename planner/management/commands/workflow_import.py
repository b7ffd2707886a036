"""`manage.py workflow_import FILE..`: stores workflows; needs a migrated database and nothing else."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from rich.console import Console

from fleet.common.commands import BAD_INPUT, read_file
from planner.importers.problems import WorkflowRejected
from planner.importers.values import MAX_BYTES
from planner.management.reporting import rejected
from planner.services import StoredWorkflow, store_workflow


class Command(BaseCommand):
    help = "Imports workflow files in any known format. What is there already is recognised by its content."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="file")
        parser.add_argument("--owner", default="", help="a user name (default: the first superuser)")
        parser.add_argument("--json", action="store_true", help="one line of JSON, the last on standard output")

    def handle(self, *args: Any, files: list[str], owner: str, **options: Any) -> None:
        user = _owner(owner)
        console = Console(stderr=True, soft_wrap=True)
        stored: list[dict[str, Any]] = []
        status = 0
        for file in files:
            try:
                result = store_workflow(owner=user, data=read_file(file, MAX_BYTES), filename=Path(file).name)
            except WorkflowRejected as error:
                status = rejected(file, error)
                continue
            stored.append(_line(file, result))
            console.print(_sentence(file, result), markup=False, highlight=False)
        if options["json"]:
            self.stdout.write(json.dumps({"stored": stored, "rejected": len(files) - len(stored)}))
        if status:
            sys.exit(status)


def _owner(name: str) -> AbstractBaseUser:
    """Raises CommandError that says what to do."""
    users = get_user_model()._default_manager
    try:
        found = users.filter(username=name) if name else users.filter(is_superuser=True).order_by("pk")
        user = found.first()
    except DatabaseError as error:
        raise CommandError(f"the database is not ready ({error}): run `manage.py migrate` first") from error
    if user is None and name:
        raise CommandError(f"there is no user {name!r}: name an existing one", returncode=BAD_INPUT)
    if user is None:
        raise CommandError("there is no superuser to own the workflows: give --owner, or run `make up` once")
    return user


def _line(file: str, result: StoredWorkflow) -> dict[str, Any]:
    version = result.version
    return {
        "file": file,
        "workflow": result.workflow.pk,
        "name": result.workflow.name,
        "version": version.number,
        "created": result.created,
        "format": version.source_format,
        "nodes": version.node_count,
    }


def _sentence(file: str, result: StoredWorkflow) -> str:
    what = "stored as" if result.created else "is known already:"
    return f"{file} {what} {result.workflow.name} v{result.version.number}, {result.version.node_count} nodes"
