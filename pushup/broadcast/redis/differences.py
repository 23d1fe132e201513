"""Says once which settings of the other nodes differ from those of this one."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.logger import Logger

from pushup.broadcast import Member

_log = Logger()


class SettingsDifferences:
    """What was said, for each of the living nodes."""

    def __init__(self) -> None:
        self._said: dict[str, list[str]] = {}

    def look(self, own: Member, others: Iterable[Member]) -> None:
        """Log what is new."""
        said: dict[str, list[str]] = {}
        for other in others:
            if own.settings is None or other.settings is None:
                continue
            names = own.settings.keys() | other.settings.keys()
            differ = sorted(name for name in names if own.settings.get(name) != other.settings.get(name))
            said[other.id] = differ
            if differ and self._said.get(other.id) != differ:
                text = "node {name} has other settings than this node: {differ}"
                _log.warn(text, name=other.name, differ=", ".join(differ))
        self._said = said
