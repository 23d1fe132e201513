"""What the scripts leave in Redis, where no node would notice soon."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from tests.broadcast.redis.commands import SortedSet, Stream
from tests.broadcast.redis.fake_redis import FakeRedis

STATE, LOG, ROWS, LOADS, LEASES, MEMBERS, VOUCHERS, NEW, FORMAT = (
    b"{p}:" + name for name in b"state log rows loads leases members vouchers begin:e format".split()
)


@pytest.fixture
def redis() -> FakeRedis:
    clock = Clock()
    clock.advance(1e9)
    return FakeRedis(clock)


def test_a_save_removes_what_is_over(redis: FakeRedis) -> None:
    """Rows that were removed, and entries before the first that is kept."""
    redis.data = {
        STATE: {b"epoch": b"e", b"saved": b"2", b"rows": b"2", b"checkpoint": b'{"sequence":2}'},
        ROWS: {b"a": b"A", b"b": b"B"},
        LOG: Stream([(1, [b"command", b"old"]), (2, [b"command", b"new"])], 2),
    }
    words = b"e 2 5 checkpoint 2 0 1 c C a".split()
    assert redis.run_script("save", (STATE, LOG, ROWS, LOADS), words) == 1
    assert redis.data[ROWS] == {b"b": b"B", b"c": b"C"}
    assert redis.data[LOG].rows == [(2, [b"command", b"new"])]
    assert redis.data[STATE] == {b"epoch": b"e", b"saved": b"5", b"rows": b"2", b"checkpoint": b"checkpoint"}


def test_a_new_epoch_leaves_nothing_of_the_one_before(redis: FakeRedis) -> None:
    """Its vouchers are about another log. The rows that were sent for it stay, although they would have expired."""
    for key in (ROWS, VOUCHERS, NEW):
        redis.execute([b"HSET", key, b"a", b"A"])
    redis.execute([b"EXPIRE", NEW, b"60"])
    redis.execute([b"HSET", STATE, b"epoch", b"e"])
    words = [*b"e e2 1000000000 run 2 checkpoint 1 e 5 2".split(), b""]
    keys = (STATE, LOG, ROWS, VOUCHERS, NEW, FORMAT)
    assert redis.run_script("begin", keys, words) == 1
    assert set(redis.data) == {STATE, ROWS, FORMAT}
    assert not redis.data.expires


def test_a_lease_without_what_its_node_has_reported(redis: FakeRedis) -> None:
    """The list of living nodes may lack one then."""
    redis.data = {LEASES: SortedSet({b"m": redis.now() + 2, b"n": redis.now() + 2}), MEMBERS: {b"n": b"N"}}
    complete, _, _, members = redis.run_script(
        "report", (STATE, LEASES, MEMBERS, FORMAT, LOADS), (b"n", b"N", b"3", b"0", b"3", b"%f" % (redis.now() - 1))
    )[9:]
    assert (complete, members) == (0, [b"N"])


@pytest.mark.parametrize("set_back", [0.0, 3600.0])
def test_vouchers_end_together(redis: FakeRedis, set_back: float) -> None:
    """6 s after the first, though another node vouches all the time; also if the clock is set back meanwhile."""

    def vouch(node: bytes) -> list[bytes]:
        run, voucher = redis.history.encode(), b"{}"
        vouchers: list[bytes] = redis.run_script("vouch", (STATE, MEMBERS, VOUCHERS), (node, voucher, run))[2][::2]
        return vouchers

    assert vouch(b"m") == [b"m"]
    redis.skew = -set_back
    for _ in range(5):
        assert vouch(b"n") == [b"m", b"n"]
        redis.clock.advance(1.0)
    redis.clock.advance(1.0)
    redis.execute([b"PING"])
    assert vouch(b"n") == [b"n"]


@pytest.mark.parametrize(("ends", "is_renamed"), [(-1, True), (0, False), (3, False), (60, True), (3600, True)])
def test_a_log_that_a_living_node_follows_keeps_its_cluster(redis: FakeRedis, ends: int, is_renamed: bool) -> None:
    """A lease that ends later than any can was given before the clock was set back, and its node may be gone."""
    redis.data = {STATE: {b"epoch": b"e", b"cluster": b"e"}, LEASES: SortedSet({b"m": redis.now() + ends})}
    assert redis.run_script("new_cluster", (STATE, LEASES), (b"c",)) == (b"e" if is_renamed else 0)
    assert redis.data[STATE][b"cluster"] == (b"c" if is_renamed else b"e")


@pytest.mark.parametrize(("before", "after"), [(b"5", b"1000000000.250000"), (b"1000000009.5", b"1000000009.500000")])
def test_the_time_of_an_entry(redis: FakeRedis, before: bytes, after: bytes) -> None:
    """That of Redis with its fraction, and never before the entry before; also of one that renames the epoch."""
    redis.clock.advance(0.25)
    redis.data = {STATE: {b"epoch": b"e", b"sequence": b"1", b"time": before, b"tag": b"t"}}
    assert redis.run_script("append", (STATE, LOG), (b"e", b"u", b"1", b"{}", redis.history.encode())) == 2
    assert redis.data[STATE][b"time"] == after
    redis.data = {STATE: {b"epoch": b"e", b"sequence": b"1", b"time": before, b"tag": b"t"}}
    assert redis.run_script("switch", (STATE, LOG, VOUCHERS), (b"t", b"u", b"{}")) == 1
    assert redis.data[STATE][b"time"] == after
