"""What every request and every response of the web process passes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from csp.constants import UNSAFE_EVAL
from django.core.exceptions import SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin

logger = logging.getLogger(__name__)

Handler = Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]

RETRY_AFTER_S = 3


class AddressMiddleware(MiddlewareMixin):
    """Refuses addresses with a NUL: PostgreSQL takes it in no text, so every query with it would fail."""

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> None:
        query = (text for name, values in request.GET.lists() for text in (name, *values))
        if "\x00" in request.path_info or any("\x00" in text for text in query):
            raise SuspiciousOperation("a NUL in the address")


class DatabaseAwayMiddleware(MiddlewareMixin):
    """Answers 503 with Retry-After when the database cannot be reached, or gives out no connection in time."""

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, OperationalError | InterfaceError):
            return None
        logger.warning("%s %s: the database is away: %s", request.method, request.path, error)
        # Without the request: the page's usual context would ask the database again.
        return HttpResponse(render_to_string("503.html"), status=503, headers={"Retry-After": str(RETRY_AFTER_S)})


class AdminPolicyMiddleware:
    """The one exception to `script-src 'self'`: unfold's Alpine evaluates expressions, under /admin/ alone."""

    async_capable = True
    sync_capable = True

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        response = self.get_response(request)
        if isinstance(response, HttpResponseBase):
            return self._relax(request, response)
        return self._relax_later(request, response)

    async def _relax_later(self, request: HttpRequest, response: Awaitable[HttpResponseBase]) -> HttpResponseBase:
        return self._relax(request, await response)

    @staticmethod
    def _relax(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if request.path.startswith("/admin/"):
            response._csp_update = {"script-src": [UNSAFE_EVAL]}  # type: ignore[attr-defined]  # django-csp's own hook
        return response
