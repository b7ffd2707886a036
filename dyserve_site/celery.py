"""The Celery application; see DESIGN.md's processes for the three queues."""

from __future__ import annotations

import logging.config
import os
import warnings
from typing import Any

from celery import Celery, platforms
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dyserve_site.settings")

# Six lines a worker about root: in a container that is how it is, and tasks are JSON, never pickles.
warnings.filterwarnings("ignore", module=platforms.__name__)

app = Celery("dyserve")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def use_the_settings(**_: Any) -> None:
    """Workers log as every other process does; Celery's own set-up stays out."""
    from django.conf import settings

    logging.config.dictConfig(settings.LOGGING)
