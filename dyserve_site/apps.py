from django.apps import AppConfig


class DyserveSiteConfig(AppConfig):
    name = "dyserve_site"
    default_auto_field = "django.db.models.BigAutoField"
