from django.apps import AppConfig


class DyserveSiteConfig(AppConfig):
    name = "dyserve_site"
    verbose_name = "API access"
    default_auto_field = "django.db.models.BigAutoField"
