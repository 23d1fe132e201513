"""The token and the scripts: `path("pushup/", include("pushup.frameworks.django.urls"))`."""

from __future__ import annotations

from django.urls import path

from pushup.frameworks.django.views import module, token

app_name = "pushup"
urlpatterns = [path("token", token, name="token"), path("<name>.js", module)]
