"""The log's levels and formats. Apart from `logs`, so that the command line can list them without Twisted."""

from __future__ import annotations

LEVELS = ("debug", "info", "warn", "error")
FORMATS = ("text", "json")
