"""Settings, urls, processes and the composition root of dyserve."""

from dyserve_site.celery import app as celery_app

__all__ = ["celery_app"]
