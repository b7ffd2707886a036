"""The Celery application; see DESIGN.md's processes for the three queues."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dyserve_site.settings")

app = Celery("dyserve")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
