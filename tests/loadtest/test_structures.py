from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from types import FrameType
from typing import Any

import pytest

from loadtest.roussev import probes, structures
from loadtest.roussev.probes import THEOREM_1, THEOREM_2, THEOREM_3
from loadtest.roussev.structures.free_workers import FreeWorkers
from loadtest.roussev.structures.hash_table import HashTable, probe_sequence
from loadtest.roussev.structures.pipe import Pipe
from loadtest.roussev.structures.shared_buffer import SharedBuffer
from loadtest.roussev.structures.two_lock_queue import TwoLockQueue

Item = tuple[int, int]
Structure = tuple[Callable[[Item], object], Callable[[], Item]]

SECONDS = 20.0
"""Threads that are not done after this time are waiting for an item that was lost."""


def _shared_buffer() -> Structure:
    buffer: SharedBuffer[Item] = SharedBuffer(3)
    return buffer.put, buffer.take


def _two_lock_queue() -> Structure:
    queue: TwoLockQueue[Item] = TwoLockQueue()
    return queue.put, queue.take


def _hash_table() -> Structure:
    table: HashTable[Item] = HashTable(7, retry_seconds=0.001)
    return lambda item: table.insert(item, hash(item)), lambda: table.take(random.getrandbits(31))[0]


def _pipe() -> Structure:
    pipe: Pipe[Item] = Pipe()
    return pipe.write, pipe.read


@pytest.fixture
def switching() -> Iterator[None]:
    """New threads are interrupted at random lines of a structure, so that a missing lock soon causes an error."""
    folder = str(Path(structures.__file__).parent)
    rng = random.Random(1)

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(folder):
            return None
        if event == "line" and rng.random() < 0.2:
            time.sleep(0.00001)
        return trace

    before = threading.gettrace()
    threading.settrace(trace)
    yield
    threading.settrace(before)


def _run(*calls: Callable[[], object]) -> None:
    """Run each call in a thread, and wait until all are done."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    end = time.monotonic() + SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
        assert not thread.is_alive(), "a thread waits for an item that never comes"


def _passed(structure: Structure, *, puts: int, takes: int, each: int) -> list[list[Item]]:
    """The items, as (putting thread, number), that each of the taking threads got."""
    put, take = structure
    got: list[list[Item]] = [[] for _ in range(takes)]

    def putting(thread: int) -> Callable[[], object]:
        return lambda: [put((thread, number)) for number in range(each)]

    def taking(thread: int) -> Callable[[], object]:
        return lambda: got[thread].extend(take() for _ in range(puts * each // takes))

    _run(*map(putting, range(puts)), *map(taking, range(takes)))
    return got


@pytest.mark.parametrize("make", [_shared_buffer, _two_lock_queue, _hash_table])
@pytest.mark.usefixtures("switching")
def test_nothing_is_lost_or_repeated_among_many_threads(make: Callable[[], Structure]) -> None:
    """Each item is taken by one thread, once."""
    got = _passed(make(), puts=6, takes=6, each=150)
    assert sorted(itertools.chain(*got)) == [(thread, number) for thread in range(6) for number in range(150)]


@pytest.mark.parametrize("make", [_shared_buffer, _two_lock_queue])
@pytest.mark.usefixtures("switching")
def test_first_in_first_out_among_many_threads(make: Callable[[], Structure]) -> None:
    """Every thread gets the items of any other in order; a single thread gets all items in order."""
    for items in _passed(make(), puts=4, takes=4, each=100):
        for thread in range(4):
            numbers = [number for putter, number in items if putter == thread]
            assert numbers == sorted(numbers)
    (alone,) = _passed(make(), puts=1, takes=1, each=300)
    assert alone == [(0, number) for number in range(300)]


@pytest.mark.usefixtures("switching")
def test_a_pipe_keeps_order_and_loses_nothing() -> None:
    """One thread reads everything that another writes."""
    (items,) = _passed(_pipe(), puts=1, takes=1, each=300)
    assert items == [(0, number) for number in range(300)]


@pytest.mark.parametrize(("make", "room"), [(_shared_buffer, 3), (_hash_table, 7), (_pipe, 1)])
def test_put_waits_while_full(make: Callable[[], Structure], room: int) -> None:
    """The item that does not fit is put once another has been taken, and not before."""
    put, take = make()
    for number in range(room):
        put((0, number))
    waiting = threading.Thread(target=lambda: put((0, room)), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    taken = [take()]
    waiting.join(5.0)
    assert not waiting.is_alive()
    taken += [take() for _ in range(room)]
    assert sorted(taken) == [(0, number) for number in range(room + 1)]


@pytest.mark.parametrize("make", [_shared_buffer, _two_lock_queue, _hash_table, _pipe])
def test_take_waits_while_empty(make: Callable[[], Structure]) -> None:
    """A waiting thread gets the item that is put later."""
    put, take = make()
    got: list[Item] = []
    waiting = threading.Thread(target=lambda: got.append(take()), daemon=True)
    waiting.start()
    time.sleep(0.1)
    assert not got
    put((1, 2))
    waiting.join(5.0)
    assert got == [(1, 2)]


@pytest.mark.usefixtures("switching")
def test_every_free_worker_is_found_and_no_busy_one() -> None:
    """A worker is given exactly one task each time it marks itself free."""
    workers, each = 5, 60
    flags = FreeWorkers(workers)
    tasks = [threading.Semaphore(0) for _ in range(workers)]
    given = [0] * workers

    def work(number: int) -> Callable[[], object]:
        def until_done() -> None:
            for done in range(each):
                assert given[number] == done
                time.sleep(0.0002)  # so that sometimes no worker is free
                flags.free(number)
                assert tasks[number].acquire(timeout=SECONDS)

        return until_done

    def give() -> None:
        for _ in range(workers * each):
            worker, _ = flags.take(0)
            given[worker] += 1
            tasks[worker].release()

    _run(give, *map(work, range(workers)))
    assert given == [each] * workers
    assert flags.count() == 0


def test_take_waits_until_a_worker_is_free() -> None:
    """The search continues when a worker marks itself free."""
    flags = FreeWorkers(3)
    found: list[tuple[int, int]] = []
    waiting = threading.Thread(target=lambda: found.append(flags.take(0)), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    flags.free(1)
    waiting.join(5.0)
    assert found == [(1, 2)]


def test_the_search_for_a_free_worker_wraps_around() -> None:
    """The search starts at the given flag, and counts the flags it probes."""
    flags = FreeWorkers(5)
    for worker in (1, 3):
        flags.free(worker)
    assert flags.take(2) == (3, 2)
    assert flags.take(2) == (1, 5)


@pytest.mark.parametrize("capacity", [3, 7, 101])
def test_a_probe_sequence_visits_every_slot_once(capacity: int) -> None:
    """For every key, since the step is relatively prime to the capacity."""
    for key in range(-capacity, capacity * capacity):
        assert sorted(probe_sequence(key, capacity)) == list(range(capacity))


def test_the_probe_sequence_is_that_of_the_appendix() -> None:
    """hash1 = key % capacity, hash2 = 1 + key % (capacity - 1)."""
    assert list(probe_sequence(17, 7)) == [3, 2, 1, 0, 6, 5, 4]
    assert list(probe_sequence(-15, 7)) == [1, 5, 2, 6, 3, 0, 4]


@pytest.mark.parametrize("capacity", [0, 1, 2, 9, 100])
def test_the_capacity_must_be_prime(capacity: int) -> None:
    """With any other capacity, a step could miss some slots."""
    with pytest.raises(ValueError, match="prime"):
        HashTable(capacity)


def test_the_theorems_say_what_the_paper_says() -> None:
    """At a load of 0.95, 1/(1 - 0.95) = 20 probes to insert and 1/0.95 = 1.05 to find (§4.1, §4.2)."""
    assert THEOREM_1.bound(95, 100) == pytest.approx(20)
    assert THEOREM_2.bound(95, 100) == THEOREM_3.bound(95, 100) == pytest.approx(1.0526, abs=1e-4)


@pytest.mark.parametrize("taken", [1, 2, 3, 4, 5])
def test_the_exact_means_are_those_of_all_orders(taken: int) -> None:
    """They equal the mean over all probe sequences of six slots, which is uniform hashing."""
    orders = list(itertools.permutations(range(6)))
    inserts = mean(1 + next(i for i, slot in enumerate(order) if slot >= taken) for order in orders)
    finds = mean(1 + next(i for i, slot in enumerate(order) if slot < taken) for order in orders)
    assert THEOREM_1.exact(taken, 6) == pytest.approx(inserts)
    assert THEOREM_2.exact(taken, 6) == THEOREM_3.exact(taken, 6) == pytest.approx(finds)
    assert inserts <= THEOREM_1.bound(taken, 6)
    assert finds <= THEOREM_2.bound(taken, 6)


def test_probes_agree_with_the_theorems() -> None:
    """At each load, the mean is that of uniform hashing, within a few standard errors, and within the bound."""
    counts = probes.count_probes((0.1, 0.5, 0.9, 0.99), rounds=1500)
    assert len(counts) == 12
    for count in counts:
        assert count.samples == 1500
        assert abs(count.mean - count.exact) < 4 * count.error, count
        assert count.mean < count.bound + 4 * count.error, count
    errors = [count.error / count.mean for count in counts]
    assert max(errors) < 0.05  # so a formula that is off by a fifth fails


def test_probes_in_service() -> None:
    """Those of the table are near the theorem's; those of the pipes only if searches do not all start at the first."""
    insert, take = probes.table_in_service(clients=60, workers=20, delay=0.005, seconds=1.0, capacity=53)
    assert 0.0 < take.load < 1.0
    assert abs(take.mean - take.exact) < max(take.exact / 4, 4 * take.error)
    assert insert.mean >= 1
    first, last, anywhere = probes.workers_in_service(busy=20, delay=0.01, seconds=0.3, workers=30)
    assert first.mean > 2 * first.bound
    assert last.mean < last.bound
    assert 1 <= anywhere.mean < first.mean
