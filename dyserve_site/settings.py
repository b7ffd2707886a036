"""Settings of every dyserve process. The environment is read here and nowhere else (helpers in env.py)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from csp.constants import NONE, SELF, UNSAFE_INLINE
from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static

from dyserve_site import env
from fleet.serving.choice import AFFINITY_MARGIN as DEFAULT_AFFINITY_MARGIN
from fleet.serving.choice import CHOICE_RULES

BASE_DIR = Path(__file__).resolve().parent.parent
HOME = env.home(BASE_DIR / "var")
PORT = env.integer("DYSERVE_PORT", 8000, low=1, high=65535)
HOST = env.text("DYSERVE_HOST", "127.0.0.1")
REDIS_URL = env.redis_url(HOME)
EMBEDDED_REDIS_SOCKET = None if env.text("REDIS_URL", "") else env.socket_path(HOME)

# --- Django ----------------------------------------------------------------------------------------------------------

SECRET_KEY = env.secret_key(HOME)
DEBUG = False
# This machine's own names always: `up`, `doctor` and health checks ask over loopback, or where the server listens.
ALLOWED_HOSTS = [*env.items("DYSERVE_ALLOWED_HOSTS", []), "localhost", "127.0.0.1", "[::1]", env.host_name(HOST)]
CSRF_TRUSTED_ORIGINS = env.items("DYSERVE_TRUSTED_ORIGINS", [])
ROOT_URLCONF = "dyserve_site.urls"
ASGI_APPLICATION = "dyserve_site.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False

INSTALLED_APPS = [
    "unfold",
    # urls.py discovers the admins: processes that serve no pages need none of them.
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "axes",
    "channels",
    "csp",
    "django_htmx",
    "ninja",
    "fleet",
    "planner",
    "runtime",
    "dyserve_site",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "csp.middleware.CSPMiddleware",
    "dyserve_site.middleware.AdminPolicyMiddleware",
    "dyserve_site.middleware.AddressMiddleware",
    "dyserve_site.middleware.DatabaseAwayMiddleware",
    "axes.middleware.AxesMiddleware",
]

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "dyserve_site.context.shell",
            ],
        },
    },
]

# --- Database, broker, channels --------------------------------------------------------------------------------------

DATABASES = {"default": env.database(HOME)}

CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "dyserve"},
    }
}

CELERY_BROKER_URL = env.broker_url(REDIS_URL)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_DEFAULT_QUEUE = "jobs"
CELERY_TASK_ROUTES = {
    "runtime.tasks.execute_run": {"queue": "runs"},
    "planner.tasks.*": {"queue": "plans"},
    "runtime.tasks.*": {"queue": "jobs"},
    "fleet.tasks.*": {"queue": "jobs"},
}
# The database decides who owns a run, not the broker: nothing is acknowledged late, nothing redelivered.
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_PUBLISH_RETRY = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "health_check_interval": 10,
    "global_keyprefix": "dyserve:",
    # One quick try: the publisher thread and the reaper send again what the broker did not take.
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0,
}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False

# --- Static files ----------------------------------------------------------------------------------------------------

STATIC_URL = "/static/"
STATIC_ROOT = HOME / "static"
# WhiteNoise warns of a folder that is not there yet.
STATIC_ROOT.mkdir(exist_ok=True)
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "dyserve_site.static_finders.PlotlyFinder",
]
_PLOTLY = find_spec("plotly")
if _PLOTLY is None or _PLOTLY.origin is None:
    raise ImproperlyConfigured("plotly is not installed; run `make install`")
# Found without importing it: only the web process draws.
PLOTLY_JS = Path(_PLOTLY.origin).parent / "package_data" / "plotly.min.js"
_COLLECTED = (STATIC_ROOT / "staticfiles.json").exists()
WHITENOISE_USE_FINDERS = not _COLLECTED
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if _COLLECTED or env.flag("DYSERVE_COLLECT", False)
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# --- Security --------------------------------------------------------------------------------------------------------

# Behind TLS set DYSERVE_HTTPS=1; the loopback default has no certificate.
HTTPS = env.flag("DYSERVE_HTTPS", False)
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_SSL_REDIRECT = HTTPS
# Health checks and Prometheus ask the process itself, not the proxy.
SECURE_REDIRECT_EXEMPT = [r"^(livez|readyz|metrics)$"]
SECURE_HSTS_SECONDS = 31536000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
# Two instances side by side on one host must not log each other out.
SESSION_COOKIE_NAME = f"dyserve_session_{PORT}"
CSRF_COOKIE_NAME = f"dyserve_csrf_{PORT}"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
FILE_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login/"
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = 0.25
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_VERBOSE = False
AXES_USERNAME_CALLABLE = "dyserve_site.callers.attempted_name"
AXES_LOCKOUT_TEMPLATE = "accounts/locked.html"

# Plotly sets style attributes and inserts one style element; scripts are ours and the wheel's files alone.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF, UNSAFE_INLINE],
        "img-src": [SELF, "data:", "blob:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "object-src": [NONE],
    },
}

# Networks that replicas (and later webhooks and HTTP tools) may live in; link-local is always refused.
ALLOWED_NETWORKS = env.items("DYSERVE_ALLOWED_NETWORKS", ["127.0.0.0/8", "::1/128"])

# --- dyserve ---------------------------------------------------------------------------------------------------------

# The only module that constructs adapters; apps reach it through runtime.composition.
DYSERVE_WIRING = "dyserve_site.wiring"
# What the leading monitor calls every two seconds, besides polling; fleet itself knows nothing of runs.
DYSERVE_MONITOR_HOOKS = ["runtime.reaper.sweep"]
MAX_UPLOAD_BYTES = 1024 * 1024
MAX_NODES = 500
EMULATOR_TIME_SCALE = env.number("DYSERVE_TIME_SCALE", 5.0, low=0.1, high=1000)
EMULATOR_SEED = env.integer("DYSERVE_SEED", 7, low=0, high=2**31 - 1)
RUNS_PER_WORKER = env.integer("DYSERVE_RUNS_PER_WORKER", 256, low=1, high=5000)
LEASE_S = env.number("DYSERVE_LEASE_S", 10.0, low=1, high=600)
POLL_INTERVAL_S = env.number("DYSERVE_POLL_S", 2.0, low=0.1, high=60)
REPLICA_CHOICE = env.one_of("DYSERVE_REPLICA_CHOICE", CHOICE_RULES)
AFFINITY_MARGIN = env.number("DYSERVE_AFFINITY_MARGIN", DEFAULT_AFFINITY_MARGIN, low=0, high=1000)
COMPILE_TIME_LIMIT_S = env.number("DYSERVE_COMPILE_LIMIT_S", 10.0, low=0.1, high=600)
COMMIT_WINDOW_S = env.number("DYSERVE_COMMIT_WINDOW_S", 0.002, low=0, high=1)
SAMPLE_RETENTION_S = env.number("DYSERVE_SAMPLE_RETENTION_S", 86400, low=60, high=31536000)

UNFOLD = {
    "SITE_TITLE": "dyserve",
    "SITE_HEADER": "dyserve",
    "SITE_SUBHEADER": "Control plane",
    "SITE_ICON": lambda _request: static("img/icon.svg"),
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda _request: static("img/icon.svg")},
    ],
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "format": "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s",
            "datefmt": "%H:%M:%S",
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.text("DYSERVE_LOG_LEVEL", "INFO")},
    "loggers": {
        "httpx": {"level": "WARNING"},
        "celery.redirected": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
        "celery.worker.consumer.connection": {"level": "WARNING"},
    },
}
