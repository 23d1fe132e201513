"""Digests of settings, by which the nodes of a cluster find out that they differ."""

from __future__ import annotations

import hashlib

from msgspec import json

from pushup.settings.settings import SECRET_FILES, Settings, flat_settings

OWN = (
    "listen", "operator_listen", "broadcast", "state_directory", "node_name", "workers", "wait_strategy", "log_level",
    "log_format", "token_keys_file", *SECRET_FILES,
)  # fmt: skip
"""Settings that each node may have of its own. Of files of secrets, what they contain is compared."""


def digests(settings: Settings) -> dict[str, str]:
    """A digest of each other setting, 8 hexadecimal digits, unless it is the default.

    Other nodes and operators see them; a key that is long enough to be accepted cannot be found by one.
    """
    default = flat_settings(Settings())
    return {
        name: hashlib.sha256(json.encode((name, value))).hexdigest()[:8]
        for name, value in flat_settings(settings).items()
        if name not in OWN and value != default[name]
    }
