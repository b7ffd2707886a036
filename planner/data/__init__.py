"""Shipped data: illustrative profiles and demonstration workflows, read from the installed package.

The profiles are invented (see make_profiles.py), not measured: show `ProfileSet.illustrative` wherever they are used.
"""

from __future__ import annotations

import json
from importlib.resources import files

from planner.compiler.profile import ProfileSet
from planner.compiler.profile_json import profiles_from_json


def load_profiles() -> ProfileSet:
    """The shipped illustrative profiles: 8 skills, 3 model classes, 8 policies, thinking on and off."""
    return profiles_from_json(json.loads(files(__name__).joinpath("profiles.json").read_text("utf-8")))


def demo_workflow_sources() -> dict[str, str]:
    """File name to text of the demonstration workflows (native format, YAML), in file-name order."""
    folder = files(__name__).joinpath("workflows")
    found = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    return {name: found[name].read_text("utf-8") for name in sorted(found)}
