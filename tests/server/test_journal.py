"""A server with a journal: acknowledged messages survive any end; a full disk; unusable files."""

from __future__ import annotations

import http.client
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from pushup.broadcast.progress_mark import mark_path
from tests.server.caller import Caller, data_of, gaps_of, sequence
from tests.server.command_line import error_of, run
from tests.server.conftest import Serve
from tests.server.raw_client import post
from tests.server.server_process import Server, wait_until

KILLS = 16

STRANGER = {"X-Forwarded-For": "192.0.2.7"}
"""The header that a proxy adds to the request of a remote client."""

CHANNELS = ("a", "b", "c", "tag:é")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def journal(path: Path) -> tuple[str, str]:
    """The flags of a server with this journal."""
    return "--broadcast", f"journal:{path}"


def by_id(caller: Caller) -> dict[int, Any]:
    """All open channels."""
    answer = caller.call("GET", "/v1/channels").value
    assert not answer["more"]
    return {channel["id"]: channel for channel in answer["channels"]}


def everything(caller: Caller, *channels: str, cursor: str = "earliest") -> list[dict[str, Any]]:
    """All messages after a cursor; none may be lost."""
    messages = []
    while True:
        answer = caller.poll(*channels, cursor=cursor, timeout=0, limit=1000)
        assert answer["gaps"] == []
        messages += answer["messages"]
        cursor = answer["cursor"]
        if not answer["more"]:
            return messages


# What survives.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_replicated_state_survives(serve: Serve, path: Path, number: signal.Signals) -> None:
    """Messages, cursors, keys, and channels with their ids, ttls and closings are the same after the restart."""
    with serve(*journal(path)) as server, server.caller() as caller:
        named = caller.call("POST", "/v1/channels", {"name": "a", "ttl": 500}).value
        nameless = caller.call("POST", "/v1/channels", {"ttl": 400}).value
        start = caller.cursor()
        first = caller.publish(["a", "b"], [1, "é"], key="k")
        second = caller.publish([str(nameless["id"])], 2.50)
        batch = {"messages": [{"channels": ["b"], "data": n} for n in range(3)]}
        many = caller.call("POST", "/v1/messages", batch, {"Idempotency-Key": "l"}).value
        caller.publish(["gone"], "gone")
        assert caller.call("DELETE", "/v1/channels/gone").status == 204
        renewed = caller.call("POST", "/v1/channels/a/renew", {"ttl": 700}).value
        channels = by_id(caller)
        last = caller.cursor()
        server.end(number)
    with serve(*journal(path)) as server, server.caller() as caller:
        assert by_id(caller) == channels
        assert caller.call("GET", f"/v1/channels/{named['id']}").value["expires"] == renewed["expires"]
        assert sequence(caller.cursor()) == sequence(last) + 1, "the order goes on under a new name"
        assert caller.poll("a", cursor=last, timeout=0)["gaps"] == []
        answer = caller.poll("a", "b", "gone", str(nameless["id"]), cursor=start, timeout=0)
        assert data_of(answer) == [[1, "é"], 2.5, 0, 1, 2]
        assert [m["id"] for m in answer["messages"]] == [first["id"], second["id"], *many["ids"]]
        assert (gaps_of(answer), answer["closed"]) == ([("gone", "closed")], ["gone"])
        assert data_of(caller.poll("b", cursor=many["ids"][0], timeout=0)) == [1, 2]
        assert caller.publish(["a", "b"], [1, "é"], key="k") == first
        other = {"channels": ["a"], "data": "not this"}
        assert caller.call("POST", "/v1/messages", other, {"Idempotency-Key": "k"}).status == 422
        assert caller.call("POST", "/v1/messages", batch, {"Idempotency-Key": "l"}).value == many
        new = caller.call("POST", "/v1/channels", {}).value
        assert new["id"] > nameless["id"]
        assert sequence(caller.publish(["a"], "new")["id"]) == sequence(last) + 8


# Put back, moved.


def test_a_journal_that_was_put_back_is_noticed(serve: Serve, path: Path) -> None:
    """Every subscriber is told, wherever its cursor is; no id is issued twice; the log says why."""
    copy = path.with_name("copy")
    with serve(*journal(path)) as server, server.caller() as caller:
        start = caller.cursor()
        ids = [caller.publish(["a"], n, key=f"k{n}")["id"] for n in range(10)]
        server.end()
    shutil.copy(path, copy)
    with serve(*journal(path)) as server, server.caller() as caller:
        ids += [caller.publish(["a"], n)["id"] for n in range(10, 30)]
        server.end(signal.SIGKILL)
    _put_back(copy, path)
    lost = [("a", "lost")]
    with serve(*journal(path)) as server, server.caller() as caller:
        server.expect_log("it is an older copy")
        for cursor in (start, ids[4], ids[9], ids[10], ids[29]):
            answer = caller.poll("a", cursor=cursor, timeout=0)
            assert (gaps_of(answer), answer["messages"]) == (lost, [])
        assert caller.call("GET", "/v1/channels/a").status == 200
        assert caller.publish(["a"], 0, key="k0")["id"] == ids[0], "keys are kept"
        new = [caller.publish(["a"], n, key=f"new{n}")["id"] for n in range(30)]
        assert not set(new) & set(ids)
        last = caller.cursor()
        (line,) = [line for line in server.log_lines() if "it is an older copy" in line]
        assert f"delete {path}.mark" in line
        server.end(signal.SIGKILL)
    with serve(*journal(path)) as server, server.caller() as caller:
        assert caller.poll("a", cursor=last, timeout=0)["gaps"] == [], "once is enough"
        assert [m["id"] for m in everything(caller, "a", cursor=new[0])] == new[1:]
        server.end()


def test_a_journal_that_was_put_back_with_its_mark(serve: Serve, path: Path) -> None:
    """Nobody can know; but whoever has seen more than it has is told, also when it has come further than that."""
    with serve(*journal(path)) as server, server.caller() as caller:
        ids = [caller.publish(["a"], n)["id"] for n in range(10)]
        server.end()
    for name in (path, mark_path(path)):
        shutil.copy(name, name.with_name(f"copy of {name.name}"))
    with serve(*journal(path)) as server, server.caller() as caller:
        ids += [caller.publish(["a"], n)["id"] for n in range(10, 30)]
        server.end()
    for name in (path, mark_path(path)):
        _put_back(name.with_name(f"copy of {name.name}"), name)
    with serve(*journal(path)) as server, server.caller() as caller:
        new = [caller.publish(["a"], n)["id"] for n in range(10, 50)]
        assert not set(new) & set(ids)
        assert gaps_of(caller.poll("a", cursor=ids[29], timeout=0)) == [("a", "lost")]
        assert [m["id"] for m in everything(caller, "a", cursor=ids[4])] == [*ids[5:10], *new]
        server.end()


def test_a_journal_that_is_moved_leaves_its_mark_behind(serve: Serve, path: Path) -> None:
    """At another place nothing is known, and it goes on there, without a gap."""
    with serve(*journal(path)) as server, server.caller() as caller:
        ids = [caller.publish(["a"], n)["id"] for n in range(10)]
        server.end()
    moved = path.rename(path.with_name("elsewhere"))
    with serve(*journal(moved)) as server, server.caller() as caller:
        assert [m["id"] for m in everything(caller, "a", cursor=ids[4])] == ids[5:]
        server.end()


def _put_back(copy: Path, path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)
    shutil.copy(copy, path)


# Kill -9 under load.


class Place:
    """The address of the current server; `down` while there is none."""

    def __init__(self) -> None:
        self._address = ""
        self._up = threading.Event()
        self.over = False

    def up(self, address: str) -> None:
        self._address = address
        self._up.set()

    def down(self) -> None:
        self._up.clear()

    def address(self) -> str:
        """Wait until there is a server."""
        assert self._up.wait(60)
        return self._address


class Publisher(threading.Thread):
    """Publishes its numbers in turn; with keys it retries until acknowledged, without it moves on to the next."""

    def __init__(self, name: str, place: Place, *, keys: bool) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: dict[str, tuple[frozenset[str], object]] = {}
        self.errors: list[BaseException] = []
        self.number = 0
        self._place = place
        self._keys = keys
        self._random = random.Random(name)
        self._channels = self._choose()

    def wait_for_more(self) -> None:
        """Wait until it has one more acknowledgement, or has failed."""
        count = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) > count or bool(self.errors), f"{self.name} to be told of more")

    def run(self) -> None:
        try:
            while not self._place.over:
                with Caller(self._place.address()) as caller:
                    self._publish(caller)
        except BaseException as error:  # the test raises it
            self.errors.append(error)

    def _choose(self) -> list[str]:
        return self._random.sample(CHANNELS, self._random.choice((1, 1, 3)))

    def _publish(self, caller: Caller) -> None:
        try:
            while not self._place.over:
                data = [self.name, self.number]
                key = f"{self.name}-{self.number}" if self._keys else None
                told = caller.publish(self._channels, data, key=key)
                assert told["id"] not in self.acknowledged
                self.acknowledged[told["id"]] = (frozenset(self._channels), data)
                self.number += 1
                self._channels = self._choose()
                time.sleep(self._random.choice((0.0, 0.0, 0.004)))
        except (OSError, http.client.HTTPException):
            self.number += not self._keys
            time.sleep(0.005)


class Reader(threading.Thread):
    """Follows a chain of cursors over all channels, from one server to the next."""

    def __init__(self, place: Place, cursor: str) -> None:
        super().__init__(daemon=True)
        self.messages: list[dict[str, Any]] = []
        self.gaps: list[dict[str, Any]] = []
        self.errors: list[BaseException] = []
        self.cursor = cursor
        self._place = place

    def run(self) -> None:
        try:
            while not self._place.over:
                with Caller(self._place.address()) as caller:
                    self._poll(caller)
        except BaseException as error:  # the test raises it
            self.errors.append(error)

    def _poll(self, caller: Caller) -> None:
        try:
            while not self._place.over:
                answer = caller.poll(*CHANNELS, cursor=self.cursor, timeout=1)
                self.messages += answer["messages"]
                self.gaps += answer["gaps"]
                self.cursor = answer["cursor"]
        except (OSError, http.client.HTTPException):
            time.sleep(0.005)


def assert_whole(messages: list[dict[str, Any]], publishers: list[Publisher]) -> None:
    """Every message is there once and in order, and every acknowledged one is there as it was published."""
    places = [sequence(m["id"]) for m in messages]
    assert places == sorted(set(places))
    by_id = {m["id"]: m for m in messages}
    said = [tuple(m["data"]) for m in messages]
    assert len(said) == len(set(said)), "one publication was carried out twice"
    for publisher in publishers:
        for id_, (channels, data) in list(publisher.acknowledged.items()):
            assert by_id[id_]["data"] == data
            assert channels <= set(by_id[id_]["channels"])
        numbers = [number for name, number in said if name == publisher.name]
        assert numbers == sorted(numbers)


def test_kill_9_under_load_loses_nothing_acknowledged(serve: Serve, path: Path) -> None:
    """After each of many kills at random times, every acknowledged message is there, once and in order."""
    draw = random.Random(9)
    place = Place()
    publishers = [Publisher(f"p{n}", place, keys=n % 2 == 0) for n in range(4)]
    kept = 1_000_000
    with serve(*journal(path), retention_messages=kept) as server, server.caller() as caller:
        start = caller.cursor()
        readers = [Reader(place, start) for _ in range(3)]
        server.end(signal.SIGKILL)
    threads: tuple[Publisher | Reader, ...] = (*publishers, *readers)
    for thread in threads:
        thread.start()
    for life in range(KILLS):
        with serve(*journal(path), retention_messages=kept) as server, server.caller() as caller:
            before = [dict(p.acknowledged) for p in publishers]
            found = {m["id"] for m in everything(caller, *CHANNELS, cursor=start)}
            assert all(acknowledged.keys() <= found for acknowledged in before)
            place.up(server.address)
            if life % 2:  # while all are at work; otherwise at any moment, perhaps before anybody is
                for publisher in publishers:
                    publisher.wait_for_more()
            time.sleep(draw.choice((0.05, 0.2, 0.4, 1.2)) * draw.random())
            server.end(signal.SIGKILL)
            place.down()
    with serve(*journal(path), retention_messages=kept) as server, server.caller() as caller:
        place.up(server.address)
        time.sleep(0.2)
        place.over = True
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
            assert not thread.errors, thread.errors
        messages = everything(caller, *CHANNELS, cursor=start)
        assert_whole(messages, publishers)
        assert all(len(p.acknowledged) >= KILLS // 2 for p in publishers)
        for reader in readers:
            assert reader.gaps == []
            assert reader.messages + everything(caller, *CHANNELS, cursor=reader.cursor) == messages
        for publisher in publishers:
            numbers = [m["data"][1] for m in messages if m["data"][0] == publisher.name]
            if publisher in publishers[::2]:
                assert numbers[: publisher.number] == list(range(publisher.number))
        server.end()


def test_pipelined_publications_are_answered_and_kept(serve: Serve, path: Path, stack: ExitStack) -> None:
    """Clients that pipeline publications get each response in order, and the next server has all of the messages."""
    count = 50
    with serve(*journal(path)) as server:
        clients = [stack.enter_context(server.connect()) for _ in range(4)]
        for client in clients:
            client.send(post("/v1/messages", {"channels": ["a"], "data": 1}) * count)
        responses = [[client.read_response() for _ in range(count)] for client in clients]
        ids = [[sequence(response.value["id"]) for response in of_one] for of_one in responses]
        assert all(of_one == sorted(of_one) for of_one in ids)
        assert sorted(i for of_one in ids for i in of_one) == list(range(1, 4 * count + 1))
        server.end(signal.SIGKILL)
    with serve(*journal(path)) as server, server.caller() as caller:
        assert len(everything(caller, "a")) == 4 * count


# A full disk.


class LimitedDisk:
    """A journal whose files cannot grow: the kernel limits the size of files this process writes."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "journal"

    def fill(self, server: Server) -> None:
        sizes = [file.stat().st_size for file in self.path.parent.glob("journal*")]
        server.process.rlimit(psutil.RLIMIT_FSIZE, (max(sizes), resource.RLIM_INFINITY))

    def make_room(self, server: Server) -> None:
        server.process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class FullDisk:
    """A file system of 8 MiB."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "journal"
        self._ballast = directory / "ballast"

    def fill(self, server: Server) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass

    def make_room(self, server: Server) -> None:
        self._ballast.unlink()


Disk = LimitedDisk | FullDisk


@contextmanager
def _mounted(directory: Path) -> Iterator[Path]:
    if os.geteuid():
        pytest.skip("only root may mount")
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


@pytest.mark.parametrize("command", ["verify", "restore"])
def test_a_journal_that_cannot_be_written_can_be_read(serve: Serve, tmp_path: Path, command: str) -> None:
    """Such as that of a stopped server in a snapshot of its disk."""
    with _mounted(tmp_path / "disk") as directory:
        with serve(*journal(directory / "journal")) as server, server.caller() as caller:
            caller.publish(["a"], 1)
            server.end()
        assert not (directory / "journal-wal").exists()
        subprocess.run(["mount", "-o", "remount,ro", str(directory)], check=True)
        done = run(command, str(directory / "journal"), *([str(tmp_path / "new")] if command == "restore" else []))
        assert (done.returncode, done.stderr) == (0, "")
        assert "messages     1, " in done.stdout


def test_a_disk_that_is_too_small_for_what_is_restored(serve: Serve, tmp_path: Path) -> None:
    """The error says so, and nothing is left behind."""
    with serve(*journal(tmp_path / "journal")) as server:
        server.end()
    with closing(sqlite3.connect(tmp_path / "journal")) as database, database:
        database.execute("INSERT INTO state VALUES ('ballast', zeroblob(20000000))")
    with _mounted(tmp_path / "disk") as directory:
        done = run("restore", str(tmp_path / "journal"), str(directory / "journal"))
        assert done.returncode == 1
        assert "full" in done.stderr
        assert list(directory.iterdir()) == []


@pytest.fixture(params=["limited", "full"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """Only root can mount a disk that really fills up; anybody can use the other way."""
    if request.param == "limited":
        yield LimitedDisk(tmp_path)
    else:
        with _mounted(tmp_path / "disk") as directory:
            yield FullDisk(directory)


def test_while_the_disk_is_full_publishing_is_refused_and_polls_continue(serve: Serve, disk: Disk) -> None:
    """503 with Retry-After and the reason; when there is space again, the order continues without loss or hole."""
    with serve(*journal(disk.path)) as server, server.caller() as caller, server.caller() as reader:
        server.expect_log("publishing is refused: .*journal|cannot write .*journal.mark")
        start = caller.cursor()
        ids = [caller.publish(["a"], n)["id"] for n in range(20)]
        disk.fill(server)
        for n in range(20, 2000):
            reply = caller.call("POST", "/v1/messages", {"channels": ["a"], "data": n}, STRANGER)
            if reply.status != 201:
                break
            ids.append(reply.value["id"])
        for _ in range(3):
            assert reply.status == 503
            assert int(reply.headers["Retry-After"]) >= 1
            assert reply.value["detail"] in (
                "the message log cannot be written",
                "this may or may not have been published; retry with the same Idempotency-Key",
            )
            assert str(disk.path) not in reply.text
            assert caller.call("GET", "/readyz").status == 503
            assert caller.call("GET", "/healthz").status == 200
            assert [m["id"] for m in everything(reader, "a", cursor=start)] == ids
            assert reader.poll("a", cursor=ids[-1], timeout=0.6)["messages"] == []
            reply = caller.call("POST", "/v1/channels", {"name": "b"}, STRANGER)
        reader.begin_poll("a", cursor=ids[-1], timeout=20)
        disk.make_room(server)
        wait_until(lambda: caller.call("GET", "/readyz").status == 200, "the server to be ready")
        ids.append(caller.publish(["a"], "after")["id"])
        assert [m["id"] for m in reader.answer()["messages"]] == ids[-1:]
        assert [sequence(i) for i in ids] == list(range(1, len(ids) + 1))
        server.end(signal.SIGKILL)
        (reason,) = [line for line in server.log_lines() if "publishing is refused: " in line]
        assert str(disk.path) in reason
        assert isinstance(disk, LimitedDisk) or "the disk is full" in reason
    with serve(*journal(disk.path)) as server, server.caller() as caller:
        assert [m["id"] for m in everything(caller, "a", cursor=start)] == ids
        server.end()


def test_a_full_disk_is_logged_once(serve: Serve, disk: Disk) -> None:
    """It is logged when it begins and when it ends; in between the server is not ready, even if nobody publishes."""
    with serve(*journal(disk.path)) as server, server.caller() as caller:
        server.expect_log("publishing is refused: .*journal|cannot write .*journal.mark")
        caller.publish(["a"], 1)
        disk.fill(server)
        while caller.call("POST", "/v1/messages", {"channels": ["a"], "data": 2}).status == 201:
            pass
        for _ in range(13):
            assert caller.call("GET", "/readyz").status == 503
            time.sleep(0.2)
        assert caller.call("POST", "/v1/messages", {"channels": ["a"], "data": 2}).status == 503
        disk.make_room(server)
        wait_until(lambda: caller.call("GET", "/readyz").status == 200, "the server to be ready")
        told = [line for line in server.log_lines() if "refused" in line]
        assert ["is refused: " in told[0], "publishing works again; it was refused for " in told[1]] == [True, True]
        assert len(told) == 2


def test_a_server_on_a_full_disk_stops_gracefully(serve: Serve, disk: Disk) -> None:
    """SIGTERM ends it with 0; no acknowledged message is lost, although there was no space for a checkpoint."""
    with serve(*journal(disk.path)) as server, server.caller() as caller:
        server.expect_log(
            "publishing is refused|saving the last checkpoint failed|closing the journal failed|cannot write"
        )
        start = caller.cursor()
        ids = [caller.publish(["a"], n)["id"] for n in range(20)]
        disk.fill(server)
        while (reply := caller.call("POST", "/v1/messages", {"channels": ["a"], "data": 1})).status == 201:
            ids.append(reply.value["id"])
        server.end()
        if isinstance(disk, FullDisk):
            disk.make_room(server)
    with serve(*journal(disk.path)) as server, server.caller() as caller:
        assert [m["id"] for m in everything(caller, "a", cursor=start)] == ids


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize("last", [signal.SIGTERM, signal.SIGKILL])
def test_a_start_on_a_full_disk(serve: Serve, tmp_path: Path, last: signal.Signals) -> None:
    """Polls get what the journal has, and publishing is refused until there is space; cursors stay valid."""
    with _mounted(tmp_path / "disk") as directory:
        disk = FullDisk(directory)
        flags = journal(disk.path)
        with serve(*flags) as server, server.caller() as caller:
            start = caller.cursor()
            ids = [caller.publish(["a"], n)["id"] for n in range(20)]
            server.end(last)
        disk.fill(server)
        with serve(*flags) as server, server.caller() as caller, server.caller() as reader:
            server.expect_log("publishing is refused: the disk is full|cannot write .*journal.mark")
            assert [m["id"] for m in everything(reader, "a", cursor=start)] == ids
            reader.begin_poll("a", cursor=ids[-1], timeout=20)
            assert caller.call("POST", "/v1/messages", {"channels": ["a"], "data": 1}).status == 503
            reply = caller.call("GET", "/readyz")
            assert (reply.status, "the disk is full" in reply.text) == (503, True)
            assert "the disk is full" not in run("check-config", *journal(disk.path)).stderr
            disk.make_room(server)
            wait_until(lambda: caller.call("GET", "/readyz").status == 200, "the server to be ready")
            ids.append(caller.publish(["a"], "after")["id"])
            answer = reader.answer()
            assert (answer["gaps"], [m["id"] for m in answer["messages"]]) == ([], ids[-1:])
            assert [m["id"] for m in everything(caller, "a", cursor=start)] == ids
            server.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_new_journal_on_a_full_disk(tmp_path: Path) -> None:
    """There is nothing to serve from: neither `check-config` nor a start succeeds, and both say why."""
    with _mounted(tmp_path / "disk") as directory:
        disk = FullDisk(directory)
        with (directory / "ballast").open("wb", buffering=0) as file:
            file.write(bytes(7 * 1024 * 1024 + 900 * 1024))  # room for an empty file, or for a small one
        flags = journal(disk.path)
        for command in (("check-config", *flags), ("serve", "--listen", "127.0.0.1:0", *flags)):
            assert "cannot create a journal" in error_of(*command)
            assert not disk.path.exists()


# Unusable files.


def told(path: Path) -> str:
    """The error of a server that cannot start with this file: one line, which names the file."""
    text = error_of("serve", "--listen", "127.0.0.1:0", *journal(path))
    (line,) = [line for line in text.splitlines() if " info " not in line]
    assert line.startswith("Error: ")
    assert str(path) in line
    return line


def test_a_second_server_with_the_same_journal_does_not_start(serve: Serve, path: Path) -> None:
    """It says so and exits with 1; the first server is not disturbed."""
    with serve(*journal(path)) as server, server.caller() as caller:
        first = caller.publish(["a"], 1)
        assert "in use by another server" in told(path)
        second = caller.publish(["a"], 2)
        assert sequence(second["id"]) == sequence(first["id"]) + 1
        server.end(signal.SIGKILL)
    with serve(*journal(path)) as server, server.caller() as caller:
        assert data_of(caller.poll("a", timeout=0)) == [1, 2]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_start_whose_address_is_taken_leaves_the_journal_as_it_is(serve: Serve, path: Path, workers: str) -> None:
    """Each start names the order anew, and cursors of forgotten names are lost: a supervisor may try it 100 times."""
    with serve(*journal(path)) as server:
        server.end()
    before = path.read_bytes()
    for address in ("127.0.0.1:0", f"unix:{path}.sock"):
        with serve("--listen", address) as other:
            said = error_of("serve", *journal(path), "--listen", other.address, "--workers", workers)
            assert f"cannot listen on {other.address}: Address already in use" in said
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as strange:
        strange.bind(f"{path}.other")
        said = error_of("serve", *journal(path), "--listen", f"unix:{path}.other", "--workers", workers)
        assert f"cannot listen on unix:{path}.other: Protocol wrong type for socket" in said
    assert (path.read_bytes(), path.with_name(path.name + "-wal").exists()) == (before, False)


def test_a_mark_of_a_newer_release_is_reported(path: Path) -> None:
    """Nothing is created, and the mark stays as it is."""
    mark_path(path).write_bytes(text := b'{"epoch":"e1","sequence":1,"why":1}')
    assert "contains something that this release does not know" in error_of("serve", *journal(path))
    assert mark_path(path).read_bytes() == text
    assert not path.exists()


def test_an_unusable_journal_is_reported(serve: Serve, path: Path, tmp_path: Path) -> None:
    """Of another format, damaged, or unrelated: exit code 1, one line, no traceback."""
    with serve(*journal(path)) as server, server.caller() as caller:
        caller.publish(["a"], 1)
        server.end()
    _change(path, "PRAGMA user_version = 2")
    assert "has format 2, and this release uses format 5" in told(path)
    _change(path, "PRAGMA user_version = 5")
    _change(path, "UPDATE rows SET body = '{'")
    assert "is damaged" in told(path)
    with path.open("r+b") as file:
        file.write(b"garbage" * 20)
    assert "is not a journal" in told(path)
    _change(tmp_path / "other", "CREATE TABLE customers (name TEXT)")
    assert "an SQLite database of another program" in told(tmp_path / "other")


def _change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(statement)
