"""The token and the scripts: `path("pushup/", include("pushup.frameworks.django.urls"))`.

LoginRequiredMiddleware would send a stranger's page to the login form, which is no script and no token.
"""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.urls import path

from pushup.frameworks.django.views import module, token

app_name = "pushup"
urlpatterns = [
    path("token", login_not_required(token), name="token"),
    path("<name>.js", login_not_required(module)),
]
