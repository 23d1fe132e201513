"""Quotas: how much one publish key, one user or one client address may ask for (`[[quotas]]` in the settings).

A request counts for its publish key; without one, for the subject of its token or URL ticket; without either, for the
client's address. So do `GET /v1/cursor` and `DELETE /v1/messages`, whose keys are not looked at by then. A
`PushUp-Ticket` is not open by then, either: for its subject, only held polls count. Each process counts what it is
asked itself. What a quota allows in `BURST_SECONDS` may come at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from itertools import islice
from time import monotonic
from typing import Literal, get_args

from msgspec import Struct

from pushup.core.errors import QuotaExceeded
from pushup.core.grant import Grant
from pushup.net.api.suggestions import shown_name
from pushup.net.application_interface import Exchange
from pushup.net.requests_and_responses import Request

BURST_SECONDS = 5.0
"""What is allowed in so many seconds may be used at once."""

NAMES_LIMIT = 10_000
"""Names of which a quota knows how much they have used lately: some 1.5 MB."""

HELD_RETRY_SECONDS = 5
"""When a poll may be tried again that would be one too many."""

QUOTAS_LIMIT = 100
"""Maximum number of quotas."""

Per = Literal["key", "subject", "address"]
"""Whose requests are counted together."""

Unit = Literal["requests_per_second", "messages_per_second", "bytes_per_second"]

_UNITS: tuple[Unit, ...] = get_args(Unit)


class QuotaTable(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A `[[quotas]]` table: what each key, subject or address may use; or only the key or subject with this name.

    None: no limit. `bytes_per_second`: of the bodies of publications. `held_polls`: streams count, too.
    """

    per: Per
    name: str = ""
    requests_per_second: float | None = None
    held_polls: int | None = None
    messages_per_second: float | None = None
    bytes_per_second: int | None = None


class QuotaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much each client may ask for."""

    quotas: tuple[QuotaTable, ...] = ()
    """How much each publish key, user or client address may ask for (docs/operate/quotas.md)."""
    subject_messages_per_second: float = 10.0
    """How many messages the user of a token may publish on average, unless a quota says so."""

    @property
    def tables(self) -> tuple[QuotaTable, ...]:
        """All of them; an earlier one comes before a later one about the same."""
        of_subjects = QuotaTable(per="subject", messages_per_second=self.subject_messages_per_second)
        return (*self.quotas, of_subjects)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Each quota that cannot be used, and why."""
        if len(self.quotas) > QUOTAS_LIMIT:
            yield "quotas", f"there are {len(self.quotas)} tables, and there can be at most {QUOTAS_LIMIT}"
        seen: dict[tuple[Per, str], int] = {}
        for number, table in enumerate(self.quotas):
            place = f"quotas[{number}]"
            if table.name and table.per == "address":
                yield f"{place}.name", "a quota per address is for all addresses; remove the name"
            if table.held_polls is None and all(getattr(table, unit) is None for unit in _UNITS):
                yield place, f"limits nothing; set held_polls or one of {', '.join(_UNITS)}"
            first = seen.setdefault((table.per, table.name), number)
            if first != number:
                yield place, f"quotas[{first}] is for the same; write both limits there"


class Rate:
    """Allows each name so many units a second, and those of `BURST_SECONDS` at once (a token bucket).

    Kept for each name: when what it has used will be allowed again. Once that has passed, the name may be forgotten.
    """

    def __init__(self, per_second: float, seconds: Callable[[], float]) -> None:
        """`seconds` of a monotonic clock."""
        self._per_second = per_second
        self._seconds = seconds
        self._even_at: dict[str, float] = {}

    def wait(self, name: str, units: int) -> float:
        """Use these units, however many: 0; or, if the name has used too many before, the seconds until it may."""
        now = self._seconds()
        even_at = max(now, self._even_at.get(name, now))
        too_early = even_at - now - BURST_SECONDS
        if too_early > 0:
            return too_early
        if len(self._even_at) >= NAMES_LIMIT:
            self._forget(now)
        self._even_at[name] = even_at + units / self._per_second
        return 0.0

    def _forget(self, now: float) -> None:
        """Forget who has not used anything lately; if that is not half of them, the oldest as well."""
        kept = {name: even_at for name, even_at in self._even_at.items() if even_at > now}
        self._even_at = dict(islice(kept.items(), max(0, len(kept) - NAMES_LIMIT // 2), None))


Place = tuple[Per, str]
"""For whom something counts or is limited. A limit without a name is for each that has none of its own."""


class Quotas:
    """Counts what is asked for, and refuses what is too much."""

    def __init__(self, tables: tuple[QuotaTable, ...] = (), seconds: Callable[[], float] = monotonic) -> None:
        """`seconds` of a monotonic clock."""
        self._seconds = seconds
        self._held: dict[Place, int] = {}
        self.use(tables)

    def use(self, tables: tuple[QuotaTable, ...]) -> None:
        """Count by other quotas from now on. What was used before is forgotten, except for held polls."""
        self._rates: dict[Unit, dict[Place, Rate]] = {unit: {} for unit in _UNITS}
        self._most_held: dict[Place, int] = {}
        for table in tables:
            key = table.per, table.name
            for unit in _UNITS:
                per_second = getattr(table, unit)
                if per_second is not None:
                    self._rates[unit].setdefault(key, Rate(per_second, self._seconds))
            if table.held_polls is not None:
                self._most_held.setdefault(key, table.held_polls)
        self.counts_requests = bool(self._rates["requests_per_second"])
        self.limits_held_polls = bool(self._most_held)
        self._limits_addresses = any(table.per == "address" for table in tables)

    def count(self, request: Request | None, grant: Grant, exchange: Exchange) -> None:
        """Count a request, once, for whoever has this grant; None stands for one whose head could not be read.

        Raises: QuotaExceeded.
        """
        if request is not None:
            if request.is_counted:
                return
            request.is_counted = True
        self.use_up("requests_per_second", 1, grant, exchange)

    def use_up(self, unit: Unit, count: int, grant: Grant, exchange: Exchange) -> None:
        """Count these units for whoever has this grant. Raises: QuotaExceeded, if they had used too many before."""
        rates = self._rates[unit]
        if not rates:
            return
        per, name = self._counted_as(grant, exchange)
        rate = rates.get((per, name)) or rates.get((per, ""))
        if rate is not None and name and (wait := rate.wait(name, count)) > 0:
            raise QuotaExceeded(
                f"{_WHOSE[per]} has used up its {unit}; nothing was done",
                retry_after=math.ceil(wait),
                operator_detail=f"{per} {shown_name(name)!r}",
            )

    def hold(self, grant: Grant, exchange: Exchange) -> Place | None:
        """Count a poll or stream that will be held; it is given back to `release`. Raises: QuotaExceeded."""
        if not self.limits_held_polls:
            return None
        place = per, name = self._counted_as(grant, exchange)
        most = self._most_held.get(place) or self._most_held.get((per, ""))
        if most is None or not name:
            return None
        held = self._held.get(place, 0)
        if held >= most:
            raise QuotaExceeded(
                f"{_WHOSE[per]} has as many polls and streams open as held_polls allows ({most})",
                retry_after=HELD_RETRY_SECONDS,
                operator_detail=f"{per} {shown_name(name)!r}",
            )
        self._held[place] = held + 1
        return place

    def release(self, place: Place | None) -> None:
        """A poll or stream has ended; `place` is what `hold` returned for it."""
        if place is not None:
            left = self._held[place] - 1
            if left:
                self._held[place] = left
            else:
                del self._held[place]

    def _counted_as(self, grant: Grant, exchange: Exchange) -> Place:
        """For whom a request counts. The name is empty for whom no quota limits, such as a client of a Unix socket."""
        if grant.key_name:
            return "key", grant.key_name
        if grant.subject or grant.is_of_token:
            return "subject", grant.subject or grant.names[0]
        return "address", network_of(exchange.client.host) if self._limits_addresses else ""  # asks the kernel


_WHOSE: dict[Per, str] = {"key": "this publish key", "subject": "this user", "address": "this client's address"}


@lru_cache(1024)
def network_of(host: str) -> str:
    """The address as quotas count it: IPv6 by its first 64 bits, which is what a household or a server has."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        mapped = address.ipv4_mapped
        return f"{IPv6Address(int(address) >> 64 << 64)}/64" if mapped is None else str(mapped)
    return host
