"""Filters and components that every page uses: `{% load ui %}`."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from fleet.common import presentation
from fleet.common.charts import Chart

register = template.Library()

register.filter("seconds", presentation.seconds)
register.filter("compact", presentation.compact)
register.filter("quality", presentation.quality)
register.filter("percent", presentation.percent)
register.filter("model_token", presentation.model_token)
register.filter("model_size", presentation.model_size)

# The icon of every state of runs, nodes, bundles and replicas; the word always stands beside it.
STATE_ICONS = {
    "waiting": "waiting",
    "queued": "waiting",
    "ready": "ready",
    "preparing": "running",
    "running": "running",
    "dispatched": "running",
    "committed": "done",
    "succeeded": "done",
    "enabled": "done",
    "healthy": "done",
    "failed": "failed",
    "unhealthy": "failed",
    "cancelled": "cancelled",
    "disabled": "cancelled",
    "draining": "draining",
    "late": "late",
    "overloaded": "late",
    "unknown": "unknown",
}


@register.simple_tag
def icon(name: str, classes: str = "") -> SafeString:
    """An icon of the sprite in templates/components/icons.html; decoration only, so hidden from screen readers."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true" focusable="false"><use href="#i-{}"></use></svg>', classes, name
    )


@register.inclusion_tag("components/state.html")
def state(value: str, text: str = "") -> dict[str, str]:
    """A chip: icon, word and colour of one state."""
    return {"state": value, "text": text or value, "icon": STATE_ICONS.get(value, "unknown")}


@register.filter
def state_icon(value: str) -> str:
    return STATE_ICONS.get(value, "unknown")


@register.inclusion_tag("components/model.html")
def model(name: str | None, short: bool = False) -> dict[str, Any]:
    """A chip in the model class's colour."""
    return {
        "name": name or "",
        "text": presentation.model_size(name) if name and short else name or presentation.DASH,
        "token": presentation.model_token(name),
    }


@register.inclusion_tag("components/chart.html")
def chart(value: Chart) -> dict[str, Chart]:
    return {"chart": value}


@register.simple_tag(takes_context=True)
def active(context: template.Context, *prefixes: str) -> SafeString:
    """`aria-current="page"` where the request's path is one of these, or below one that ends in a slash."""
    request = context.get("request")
    path = request.path if request else ""
    hit = any(path == prefix or (prefix != "/" and path.startswith(prefix)) for prefix in prefixes)
    return SafeString('aria-current="page"' if hit else "")
