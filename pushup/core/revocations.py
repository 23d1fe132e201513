"""Revocations: what was allowed before some entry, and nobody may use from that entry on, on any node.

A token or ticket is revoked by its subject and time (everything issued to this user before it), or by its own name
(`jti`). A revocation is kept for as long as what it revokes could be valid otherwise.
"""

from __future__ import annotations

import math

from msgspec import Struct

from pushup.core.bounded_table import BoundedTable
from pushup.core.commands import Revoke, RevokedBy
from pushup.core.errors import BadRequest, Overloaded, PushUpError
from pushup.core.grant import Grant

AHEAD_SECONDS = 60.0
"""How far in the future `issued_before` may be: clocks differ."""

SLACK_SECONDS = 180.0
"""How much longer a revocation is kept than tokens may live: `issued_before` may be a minute ahead, the clock of an
issuer as well, and a token is accepted for up to a minute after its end."""


class Revocation(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One revocation: of all tokens and tickets of this subject issued before a time, in seconds since the epoch."""

    by: RevokedBy
    name: str
    issued_before: float
    sequence: int
    time: float

    @property
    def row_name(self) -> str:
        return f"{self.by}:{self.name}"


class Revocations(BoundedTable[Revocation]):
    """The revocations of the last time. None is dropped for another: a full table refuses."""

    name = "revocations"
    row_type = Revocation

    @property
    def limit(self) -> int:
        return self._rules.limits.revocations_limit

    @property
    def seconds(self) -> float:
        return self._rules.limits.token_lifetime_limit_seconds + SLACK_SECONDS

    def add(self, command: Revoke, sequence: int, time: float) -> Revocation | PushUpError:
        """Keep a revocation; or the error if it cannot be. An earlier one of the same subject is part of it."""
        if command.issued_before is not None and not 0 < command.issued_before <= time + AHEAD_SECONDS:
            text = "issued_before is a time in seconds since the epoch, and not in the future"
            return BadRequest(text, field="issued_before")
        before = self._rows.get(f"{command.by}:{command.name}")
        if before is None and len(self._rows) >= self.limit:
            return Overloaded(f"revocations_limit of {self.limit} is reached; nothing was revoked", retry_after=60)
        # Tokens have whole seconds: one that is issued in the second of this entry is revoked, even if it came later.
        issued_before = math.floor(time) + 1.0 if command.issued_before is None else command.issued_before
        if before is not None:
            issued_before = max(issued_before, before.issued_before)
        row = Revocation(command.by, command.name, issued_before, sequence, time)
        self._keep(row)  # not `put`, which drops others if the limit has become smaller
        return row

    def include(self, grant: Grant) -> bool:
        """Whether what this grant allows was revoked, or lives so long that its revocation may be forgotten before.

        So a revocation holds whatever limit the lifetime was checked against.
        """
        if grant.valid_until - grant.issued_at > self.seconds - 2 * AHEAD_SECONDS:
            return True
        rows = self._rows
        if not rows:
            return False
        of_subject = rows.get(f"sub:{grant.subject}") if grant.subject else None
        if of_subject is not None and grant.issued_at < of_subject.issued_before:
            return True
        return bool(grant.token_id) and f"jti:{grant.token_id}" in rows
