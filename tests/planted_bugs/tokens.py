"""Bugs in tokens, keys, revocation and the rate of users, and the test that notices each."""

from __future__ import annotations

from tests.planted_bugs.bug import Bug, Edit

NO_USERS = "simulated users have tokens that are good, and are revoked"
ONE_RUN = "the simulation reads no settings again"

BUGS = (
    Bug(
        "memo-of-tokens-without-an-end",
        "a token that was accepted once is accepted after its end",
        "a cache of verified tokens that keeps only the rights",
        (Edit("pushup/tokens/verifier.py", "if now >= grant.valid_until:", "if False:"),),
        test="tests/tokens/test_rotation.py",
        why=NO_USERS,
    ),
    Bug(
        "memo-of-tokens-outlives-its-keys",
        "a token that was accepted once is accepted after its issuer has withdrawn the key",
        "keys that are fetched again beside a cache that nobody clears",
        (Edit("pushup/tokens/tokens.py", "        self.forget()\n", ""),),
        test="tests/tokens/test_rotation.py",
        why=ONE_RUN,
    ),
    Bug(
        "held-poll-outlives-its-key",
        "after a key was withdrawn, what was held on it goes on until the token ends",
        "PushUp before this release",
        (Edit("pushup/service.py", "        self._poll_access.end_withdrawn()\n", ""),),
        test="tests/server/test_reload.py",
        why=ONE_RUN,
    ),
    Bug(
        "earlier-end-of-a-key-is-ignored",
        "a key that gets an end keeps the polls that are held on it for longer",
        "a key is either there or not",
        (
            Edit(
                "pushup/net/api/poll_access.py",
                "grant.valid_until > ends.get(grant.key_id, 0.0)",
                "grant.key_id not in ends",
            ),
        ),
        test="tests/net/api/test_withdrawn_keys.py",
        why=ONE_RUN,
    ),
    Bug(
        "name-taken-for-a-prefix",
        "a right for user:1 is one for user:10 as well",
        "prefix match of topics in several brokers",
        (
            Edit(
                "pushup/core/grant.py",
                "(names if name == pattern else prefixes).append(name)",
                "prefixes.append(name)",
            ),
        ),
        test="tests/tokens/test_claims.py",
        why=NO_USERS,
    ),
    Bug(
        "one-bad-entry-is-skipped",
        "a token with a right that cannot be used keeps its other rights",
        "lenient parsers of scopes",
        (
            Edit(
                "pushup/core/grant.py",
                '            raise ValueError(f"has {shown}; write',
                '            continue\n            raise ValueError(f"has {shown}; write',
            ),
        ),
        test="tests/tokens/test_claims.py",
        why=NO_USERS,
    ),
    Bug(
        "bad-cookie-is-nobody",
        "a request with a cookie that is not accepted counts as one without",
        "falling back to anonymous",
        (
            Edit(
                "pushup/net/api/access.py",
                "        return self._tokens.grant(token)\n\n\ndef check_channels",
                "        try:\n            return self._tokens.grant(token)\n        except InvalidToken:\n"
                "            return None\n\n\ndef check_channels",
            ),
        ),
        test="tests/net/api/test_tokens.py",
        why=NO_USERS,
    ),
    Bug(
        "revoked-only-when-it-polls",
        "a poll that is held when its user is revoked gets the message that comes with the revocation",
        "checks at the door only",
        (
            Edit(
                "pushup/net/api/poll_access.py",
                "return 0.0 if self.node.is_revoked(grant) else grant.valid_until - self._wall()",
                "return grant.valid_until - self._wall()",
            ),
        ),
        test="tests/net/api/test_revoking.py",
        why="a simulated revocation ends what is held before a message can follow",
    ),
    Bug(
        "full-table-forgets-revocations",
        "a revocation that finds the table full pushes out another",
        "bounded caches of revoked ids",
        (
            Edit(
                "pushup/core/revocations.py",
                "        if before is None and len(self._rows) >= self.limit:\n",
                "        if before is None and len(self._rows) >= self.limit:\n"
                "            self._rows.pop(next(iter(self._rows)))\n        if False:\n",
            ),
        ),
        test="tests/net/api/test_revoking.py",
        why="simulated tables are not full",
    ),
    Bug(
        "tokens-of-an-earlier-order",
        "an order that continues nothing accepts tokens of users whose revocations it has lost",
        "revocations that are kept in memory",
        (Edit("pushup/core/state.py", "return grant.issued_at < began or self", "return self"),),
        family="u",
    ),
    Bug(
        "rate-of-a-token",
        "a user who has several tokens may publish as often with each",
        "limits by session",
        (Edit("pushup/net/api/quotas.py", "grant.subject or grant.names[0]", "grant.names[-1]"),),
        test="tests/net/api/test_quotas.py",
        why=NO_USERS,
    ),
)
