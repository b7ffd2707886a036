"""Loaded before Django's settings (`-p tests.environment`): every test process gets a home of its own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_home = tempfile.mkdtemp(prefix="dyserve-test-")
atexit.register(shutil.rmtree, _home, ignore_errors=True)
os.environ["DYSERVE_HOME"] = _home
for _name in ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "DYSERVE_PORT"):
    os.environ.pop(_name, None)
