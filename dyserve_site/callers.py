"""Who asks: whoever tries to log in, and who may see operational figures without a login."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from dyserve_site.tokens import bearer
from fleet.common.scopes import Scope

MAX_NAME = 255
"""What the log of logins keeps of a name; the form itself limits none."""
_FORWARDED = ("X-Forwarded-For", "Forwarded", "X-Real-Ip")


def attempted_name(request: HttpRequest, credentials: Mapping[str, Any] | None) -> str | None:
    """The name of a login attempt for axes, cut to what its table takes: a longer one must not fail the request."""
    name = (credentials or request.POST).get("username")
    return None if name is None else str(name)[:MAX_NAME]


def is_local(request: HttpRequest) -> bool:
    """Asked from this machine, and not on behalf of another one by a proxy here."""
    if any(name in request.headers for name in _FORWARDED):
        return False
    try:
        address = ipaddress.ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def may_see_figures(request: HttpRequest) -> bool:
    """Local, or with a token that reads the fleet."""
    if is_local(request):
        return True
    caller = bearer(request)
    return caller is not None and caller.allows(Scope.FLEET_READ)
