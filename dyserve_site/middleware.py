"""The one exception to `script-src 'self'`: unfold's Alpine evaluates expressions, under /admin/ alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from csp.constants import UNSAFE_EVAL
from django.http import HttpRequest, HttpResponseBase

Handler = Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]


class AdminPolicyMiddleware:
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
