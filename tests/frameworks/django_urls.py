"""The URLs of the project."""

from django.urls import include, path

urlpatterns = [path("pushup/", include("pushup.frameworks.django.urls"))]
