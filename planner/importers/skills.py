"""Which skill a foreign task needs, by a rule that people can read and overrule (ours).

The first word of the objective that the table knows decides; if it knows none, the first one of the role; if it knows
none there either, the skill is `reasoning`. Ambiguous verbs (create, develop, design, generate) are not in the table:
what they act on decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

DEFAULT_SKILL = "reasoning"

SKILL_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "plan": (
            *("plan", "planning", "planner", "outline", "outlining", "architecture", "architect", "layout"),
            *("structure", "roadmap", "strategy", "strategist", "overall", "decompose", "organize"),
            *("requirements", "coordinate", "coordinator", "manager", "define", "specify", "blueprint"),
        ),
        "code": (
            *("implement", "implementing", "implementation", "code", "coding", "program", "programmer", "python"),
            *("javascript", "java", "html", "css", "stylesheet", "sql", "algorithm", "function", "module", "class"),
            *("script", "api", "backend", "frontend", "logic", "gui", "ui", "interface", "integrate", "integration"),
            *("refactor", "developer", "engineer", "software", "tkinter", "debug", "fix"),
        ),
        "test": (
            *("test", "tests", "testing", "tester", "validate", "validation", "verify", "verification", "qa"),
            *("bugs", "quality", "assert", "coverage", "review", "reviewer", "inspect"),
        ),
        "tool": (
            *("deploy", "deploying", "deployment", "install", "execute", "run", "search", "browse", "download"),
            *("fetch", "query", "call", "invoke", "monitor", "monitoring", "publish", "upload", "send"),
        ),
        "extract": (
            *("extract", "extraction", "gather", "collect", "collecting", "parse", "parsing", "identify", "list"),
            *("retrieve", "scrape", "summarize", "summarise", "summary", "classify", "label", "analyst"),
        ),
        "answer": (
            *("answer", "answering", "respond", "response", "reply", "question", "questions", "explain", "translate"),
        ),
        "reasoning": (
            *("analyze", "analyse", "analysis", "evaluate", "evaluating", "compare", "comparison", "reason", "decide"),
            *("determine", "calculate", "compute", "solve", "prove", "infer", "deduce", "estimate", "assess"),
        ),
        "writing": (
            *("write", "writing", "writer", "draft", "drafting", "compose", "content", "article", "essay", "blog"),
            *("report", "story", "poem", "copy", "edit", "editor", "rewrite", "section", "page", "homepage"),
            *("introduction", "conclusion", "describe", "description", "documentation", "text", "email"),
        ),
    }
)
_SKILL_OF = {word: skill for skill, words in SKILL_WORDS.items() for word in words}
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillChoice:
    """A skill, the word that decided and where it stood; no word when nothing matched."""

    skill: str
    word: str = ""
    found_in: Literal["objective", "role", "nothing"] = "nothing"

    @property
    def reason(self) -> str:
        if self.found_in == "nothing":
            return f"skill {self.skill}: no word of the rule table occurs in the objective or the role"
        return f"skill {self.skill}: the word {self.word!r} in the {self.found_in}"


def choose_skill(objective: str, role: str = "") -> SkillChoice:
    """The skill of a task by the rule above."""
    places: tuple[tuple[Literal["objective", "role"], str], ...] = (("objective", objective), ("role", role))
    for place, text in places:
        for match in _WORD.finditer(text):
            skill = _SKILL_OF.get(match.group().casefold())
            if skill is not None:
                return SkillChoice(skill=skill, word=match.group().casefold(), found_in=place)
    return SkillChoice(skill=DEFAULT_SKILL)
