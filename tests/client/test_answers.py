"""Answers of both clients, written and followed without real time."""

from __future__ import annotations

import json
import random
from collections.abc import Coroutine
from concurrent.futures import Future
from itertools import islice, repeat
from math import inf
from typing import Any

import pytest

from pushup.client import AnswerCutOff, AnswerError, AnswerFailed, AnswerWriter, Client, ClientError
from pushup.client.driver import run
from tests.client.both_clients import MakeClient
from tests.client.simulated_driver import HANGS, REFUSED, RESET, Reply, Sent, SimulatedDriver, answer, stream


def event(number: int, **data: Any) -> dict[str, Any]:
    """A piece or a beat, as a stream sends it."""
    return {"id": f"e-{number}", "data": message(number, **data)}


def message(number: int, **data: Any) -> dict[str, Any]:
    return {"id": f"e-{number}", "time": 1.0, "channels": ["a"], "event": "answer", "data": data}


def polled(cursor: str, *messages: dict[str, Any]) -> Reply:
    return answer(200, {"cursor": cursor, "messages": list(messages), "more": False, "gaps": [], "closed": []})


X = event(1, piece=0, parts=["x", {"tool": 1}])


def test_following(make: MakeClient) -> None:
    """The parts come as they are written, over a stream that ends; nothing twice, and nothing of other events. A gap in
    which nothing of the answer was lost is none."""
    driver = SimulatedDriver(
        a=[
            stream(X, event(2, piece=1, parts=[]), 9.0),
            stream(
                X,
                event(3, beat=2),
                {"event": "gap", "data": {"channel": "a", "reason": "lost", "until": "e-3"}},
                {"id": "e-4", "data": message(4, piece=2) | {"event": "other"}},
                event(5, piece=2, parts=["y"]),
                event(6, piece=3, parts=["z"], end="stopped"),
                closes=False,
            ),
        ]
    )
    assert list(make("unix:a", driver=driver).follow_answer("a")) == ["x", {"tool": 1}, "y", "z"]
    assert driver.sent[0].body["channels"] == ["a"]


def test_following_one_that_fails(make: MakeClient) -> None:
    """The error comes after all parts, with its text for users."""
    driver = SimulatedDriver(a=[stream(X, event(2, piece=1, parts=["y"], end="error", error="sorry"), closes=False)])
    items = make("unix:a", driver=driver).follow_answer("a")
    assert list(islice(items, 3)) == ["x", {"tool": 1}, "y"]
    with pytest.raises(AnswerFailed, match=r"^sorry$"):
        next(items)


@pytest.mark.parametrize(
    ("then", "why"),
    [
        ([event(3, piece=2, parts=["z"])], "piece 1 of a is missing"),
        ([event(3, beat=2)], "piece 1 of a is missing"),
        ([{"event": "closed", "data": {"channel": "a"}}], "was closed"),
    ],
)
def test_following_one_that_is_cut_off(make: MakeClient, then: list[dict[str, Any]], why: str) -> None:
    """What comes next shows that something is missing."""
    items = make("unix:a", driver=SimulatedDriver(a=[stream(X, *then, closes=False)])).follow_answer("a")
    assert list(islice(items, 2)) == ["x", {"tool": 1}]
    with pytest.raises(AnswerCutOff, match=why):
        next(items)


BEATS = [each for second in range(10) for each in (14.0, event(second, beat=1))]


@pytest.mark.parametrize("transport", ["stream", "poll"])
def test_following_a_silent_writer(make: MakeClient, transport: str) -> None:
    """After 15 s without a beat, a node is asked anew, and has nothing: the answer was cut off."""
    silent = [stream(X, *BEATS, closes=False), polled("e-9")]
    if transport == "poll":
        held = Reply([(15.0, polled("e-1").pieces[0][1])])
        silent = [answer(404), polled("e-1", X["data"]), held, polled("e-1")]
    driver = SimulatedDriver(a=silent)
    items = make("unix:a", driver=driver).follow_answer("a")
    assert list(islice(items, 2)) == ["x", {"tool": 1}]
    began = driver.time
    with pytest.raises(AnswerCutOff, match="silent for 15 s"):
        next(items)
    assert driver.time - began == 15.0 + (140.0 if transport == "stream" else 0.0)
    assert driver.sent[-1].body["timeout"] == 0.0
    if transport == "poll":
        assert driver.sent[-2].body["timeout"] == 15.0
    else:
        assert 1 not in driver.open


def test_following_over_a_dead_connection(make: MakeClient) -> None:
    """The node that is asked anew has more: it goes on."""
    y = event(2, piece=1, parts=["y"])
    driver = SimulatedDriver(
        a=[stream(X, closes=False), polled("e-2", y["data"]), stream(event(3, piece=2, parts=[], end="done"))]
    )
    assert list(make("unix:a", driver=driver).follow_answer("a")) == ["x", {"tool": 1}, "y"]
    assert driver.sent[-1].body["cursor"] == "e-2"


def test_following_while_no_node_is_there(make: MakeClient) -> None:
    """That is no silence of the writer, however long it takes; a refusal ends it."""
    gone = [REFUSED] * 30
    driver = SimulatedDriver(
        a=[
            stream(X, closes=False), HANGS, *gone,
            stream({"id": "e-1"}, 14.0, event(2, piece=1, parts=["y"]), closes=False), answer(403),
        ]
    )  # fmt: skip
    items = make("unix:a", driver=driver).follow_answer("a")
    assert list(islice(items, 3)) == ["x", {"tool": 1}, "y"]
    assert driver.time > 1100.0
    with pytest.raises(ClientError, match="403"):
        next(items)


def test_reading(make: MakeClient) -> None:
    """All of an answer, in as many requests as it takes; each is tried again, as other calls are."""
    y, z = message(2, piece=1, parts=["y"]), message(3, piece=2, parts=["z"], end="done")
    first = answer(200, {"cursor": "e-2", "messages": [X["data"], y], "more": True, "gaps": [], "closed": []})
    late = message(4, piece=3, parts=["after the end"])
    rest = polled("e-4", z, late)
    driver = SimulatedDriver(a=[answer(503), RESET, first, RESET, rest, polled("e-1"), polled("e-3", y)])
    client = make("unix:a", driver=driver)
    state = client.read_answer("a")
    assert (state.text, state.parts, state.end) == ("xyz", ["x", {"tool": 1}, "y", "z"], "done")
    assert [sent.body["cursor"] for sent in driver.sent] == ["", "", "", "e-2", "e-2"]
    assert client.read_answer("a").end is None
    with pytest.raises(AnswerCutOff, match="piece 0 of a is missing"):
        client.read_answer("a")


def test_a_client_that_is_stopped(make: MakeClient) -> None:
    """It does not look like the end of the answer."""
    driver = SimulatedDriver(a=[stream(X, closes=False)])
    client = make("unix:a", driver=driver)
    items = client.follow_answer("a")
    assert list(islice(items, 2)) == ["x", {"tool": 1}]
    client.stop()
    with pytest.raises(ClientError, match="stopped"):
        next(items)


class Node:
    """What docs/guide/answers.md needs of a server. `faults` answer instead of it, one for each publication."""

    def __init__(self, *faults: Reply, stops_at: float = inf) -> None:
        self.published: list[tuple[float, dict[str, Any]]] = []
        """The data of each piece and beat, with the seconds since the beginning."""
        self._faults = iter(faults)
        self._stops_at = stops_at
        self._keys: dict[str, Any] = {}
        self.driver = SimulatedDriver(a=repeat(Reply(decide=self._decide)))

    def _decide(self, sent: Sent) -> Reply:
        now = self.driver.time - 1000.0
        if sent.target == "/v1/events":
            assert sent.body["channels"] == ["a:stop"]
            return stream({"id": "e-0"}, *self._beats(self._stops_at - now), event(1), closes=False)
        if sent.target == "/v1/poll":
            return polled("e-1", *(message(1, **data) for _, data in self.published if "piece" in data))
        fault = next(self._faults, None)
        if fault is not None:
            return fault
        data, key = sent.body["data"], sent.headers["idempotency-key"]
        if key not in self._keys:
            self._keys[key] = data
            self.published.append((now, data))
        if self._keys[key] != data:
            return answer(422)
        return answer(201, {"id": "e-1", "time": 1.0, "cursor": "e-1"})

    @staticmethod
    def _beats(seconds: float) -> list[dict[str, Any] | float]:
        pauses = int(min(seconds, 3600.0) // 15.0)
        rest: list[dict[str, Any] | float] = [15.0, {"id": "e-0"}] * pauses
        return [*rest, inf if seconds == inf else seconds % 15.0]

    @property
    def pieces(self) -> list[tuple[float, list[Any], str | None]]:
        """When, which parts, and which end."""
        return [(round(at, 3), data["parts"], data.get("end")) for at, data in self.published if "piece" in data]

    @property
    def beats(self) -> list[tuple[float, int]]:
        return [(round(at, 3), data["beat"]) for at, data in self.published if "beat" in data]

    def write(self, **options: Any) -> AnswerWriter:
        return Client("unix:a", driver=self.driver).answer("a", **options)

    def pause(self, seconds: float) -> None:
        """The model thinks."""
        run(self.driver.sleep(seconds))


def test_writing() -> None:
    """The first text goes at once, then what comes within 50 ms together, and at last the end; a value stays whole."""
    node = Node()
    with node.write() as writer:
        for part in ("0", "1", "2", {"tool": 1}, "4"):
            writer.send(part)
            node.pause(0.029)
    assert node.pieces == [
        (0.0, ["0"], None), (0.05, ["1"], None), (0.1, ["2", {"tool": 1}], None), (0.15, ["4"], "done"),
    ]  # fmt: skip


def test_much_at_once() -> None:
    """It goes without pauses, in pieces of 4096 characters, the end with the last."""
    node = Node()
    with node.write() as writer:
        writer.write("x" * 10_000)
        assert writer.text == ""
    assert [(at, len("".join(parts)), end) for at, parts, end in node.pieces] == [
        (0.0, 4096, None), (0.0, 4096, None), (0.05, 1808, "done"),
    ]  # fmt: skip


def test_characters_that_are_split() -> None:
    """The halves of a character, as JSON writes them, are put together; one that stays alone is replaced."""
    node = Node()
    with node.write() as writer:
        for part in ("a\ud83d", "", "\ude00b", "\ufeffc", "\ude00", "\ud83d", "d", "\ud83d\ude00\ud83d"):
            writer.write(part)
            node.pause(0.1)
    assert [part for _, parts, _ in node.pieces for part in parts] == [
        "a", "\U0001f600b", "\ufeffc", "\ufffd", "\ufffdd", "\U0001f600",
    ]  # fmt: skip


def test_what_may_be_sent() -> None:
    """Values are published as they were when they were sent; texts may be long, values may not; bytes are no text."""
    node = Node()
    with node.write() as writer:
        value = {"n": "\ud83d" + "\ude00"}  # two halves of a character
        writer.send(value)
        value["n"] = "2"
        writer.send("\U0001f600" * 50_000)
        for wrong in (b"x", None, value):
            with pytest.raises(TypeError, match="write takes text, not"):
                writer.write(wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="at most 49152 bytes"):
            writer.send({"n": "x" * 50_000})
        with pytest.raises(ValueError, match="not JSON"):
            writer.send(float("nan"))
        with pytest.raises(ValueError, match="surrogates not allowed"):
            writer.send(["\ud83d"])
        with pytest.raises(TypeError, match="fail takes a text"):
            writer.fail(ValueError("no model"))  # type: ignore[arg-type]
    (_, first, _), *rest = node.pieces
    assert first == [{"n": "\U0001f600"}]
    assert "".join("".join(parts) for _, parts, _ in rest) == "\U0001f600" * 50_000
    assert all(len(json.dumps(parts)) < 60_000 for _, parts, _ in rest)


def test_an_empty_answer() -> None:
    """It has an end, and nothing else; so has one of empty texts."""
    for texts in ([], ["", ""]):
        node = Node()
        with node.write() as writer:
            for text in texts:
                writer.write(text)
        assert node.pieces == [(0.0, [], "done")]


def test_writing_outside_of_the_block() -> None:
    """It raises, instead of keeping what nobody will publish."""
    node = Node()
    writer = node.write()
    with pytest.raises(AnswerError, match="in the block"):
        writer.write("x")
    with writer:
        writer.write("y")
    with pytest.raises(AnswerError, match="has ended"):
        writer.write("z")
    assert node.pieces == [(0.0, ["y"], "done")]


def test_beats() -> None:
    """One at first, and one for each 4 s without a piece, with the number of the next."""
    node = Node()
    with node.write() as writer:
        node.pause(9.0)
        writer.write("x")
        node.pause(5.0)
    assert node.beats == [(0.0, 0), (4.0, 0), (8.0, 0), (13.0, 1)]


def test_trouble_while_writing() -> None:
    """Each piece is tried again, with its key, and what is written meanwhile goes together; the writer never waits."""
    node = Node(answer(201, {"id": "e-1", "time": 1.0, "cursor": "e-1"}), RESET, answer(503), HANGS)
    with node.write() as writer:
        for part in ("x", "y", "z"):
            writer.write(part)
            assert node.driver.time < 1001.0
            node.pause(0.1)
    assert [(parts, end) for _, parts, end in node.pieces] == [(["x"], None), (["yz"], "done")]
    keys = [sent.headers["idempotency-key"] for sent in node.driver.sent if sent.target == "/v1/messages"]
    assert keys[1:] == ["a#0"] * 4 + ["a#1"]


def test_a_server_that_stays_away() -> None:
    """The writer raises after its patience."""
    node = Node(*[answer(503)] * 1000)
    writer = node.write(patience=30.0)
    with pytest.raises(ClientError, match="503"), writer:  # noqa: PT012
        writer.write("x")
        node.pause(31.0)
        writer.write("y")
    assert 1030.0 < node.driver.time < 1032.0


def test_a_server_that_refuses_a_piece() -> None:
    """Readers get an error at once."""
    node = Node(answer(201, {"id": "e-1", "time": 1.0, "cursor": "e-1"}), answer(413))
    with pytest.raises(ClientError, match="413"), node.write() as writer:  # noqa: PT012
        writer.write("x")
        node.pause(0.1)
        writer.write("y")
    assert node.pieces == [(0.0, [], "error")]


def test_stopping() -> None:
    """It ends the block within the time that it takes to be told."""
    node = Node(stops_at=20.0)
    with node.write() as writer:
        while True:
            writer.write("x")
            node.pause(1.0)
    assert writer.stopped
    assert node.pieces[-1][1:] == ([], "stopped")
    assert 20.0 <= node.driver.time - 1000.0 <= 22.0


def test_stopping_one_that_waits_for_the_server() -> None:
    """It is told at once, also while as much waits as may."""
    node = Node(*[answer(503)] * 1000, stops_at=20.0)
    with pytest.raises(AnswerError, match="not published within 5 s"), node.write() as writer:  # noqa: PT012
        for _ in range(300):
            writer.write("x" * 4096)
    assert writer.stopped
    assert node.driver.time == 1025.0


def test_another_producer() -> None:
    """The one that comes second to a piece raises, and says nothing to readers."""
    node = Node()
    with node.write() as first:
        second = node.write()
        second.__enter__()
        first.write("x")
        node.pause(0.1)
        second.write("y")
        with pytest.raises(AnswerError, match="another producer"):
            second.__exit__(None, None, None)
        first.write("z")
    assert [(parts, end) for _, parts, end in node.pieces] == [(["x"], None), (["z"], "done")]


@pytest.mark.parametrize("seed", range(20))
def test_two_producers_at_once(seed: int) -> None:
    """What is read is what one of them wrote; the other raises. Both go on where the one before them died."""
    draw, node = random.Random(seed), Node()
    node.published.append((0.0, {"piece": 0, "parts": ["0 "]}))
    writers = [node.write(resume=True) for _ in range(2)]
    for writer in writers:
        writer.__enter__()
        assert writer.text == "0 "
    texts, failed = ["0 ", "0 "], set[int]()
    for _ in range(12):
        number = draw.randrange(2)
        part = draw.choice("xy")
        texts[number] += part
        try:
            writers[number].write(part)
        except AnswerError:
            failed.add(number)
        node.pause(draw.choice((0.0, 0.03, 0.1)))
    for number in draw.sample(range(2), 2):
        try:
            writers[number].__exit__(None, None, None)
        except AnswerError:
            failed.add(number)
    read = "".join("".join(parts) for _, parts, _ in node.pieces)
    whole = [number for number in range(2) if number not in failed]
    assert [text for text in texts if text == read] != []
    assert len(whole) == 1 or texts[0] == texts[1]
    assert [end for _, _, end in node.pieces if end] == ["done"]
    assert all(texts[number] == read for number in whole)


def test_an_exception_while_no_server_is_there() -> None:
    """It leaves the block after 5 s."""
    node = Node(*[answer(503)] * 1000)
    with pytest.raises(ZeroDivisionError), node.write():  # noqa: PT012
        node.pause(1.0)
        raise ZeroDivisionError
    assert node.driver.time == 1006.0


def test_an_exception_after_a_stop_of_the_client() -> None:
    """It is not replaced by an error which only says that the client was stopped."""
    client = Client("unix:a", driver=Node().driver)
    with pytest.raises(ZeroDivisionError), client.answer("a"):  # noqa: PT012
        client.stop()
        raise ZeroDivisionError
    client = Client("unix:a", driver=Node().driver)
    with pytest.raises(ClientError, match="stopped"), client.answer("a"):
        client.stop()


def test_a_writer_whose_second_thread_cannot_start() -> None:
    """The first thread ends as well. Otherwise readers would wait for an answer that is never written."""

    class Few(SimulatedDriver):
        def background(self, coroutine: Coroutine[Any, Any, None]) -> Future[None]:
            if started:
                coroutine.close()
                raise RuntimeError("can't start new thread")
            started.append(super().background(coroutine))
            return started[0]

    started: list[Future[None]] = []
    node = Node()
    node.driver = Few(a=node.driver.scripts["a"])
    with pytest.raises(RuntimeError, match="new thread"), node.write():
        pass
    assert len(started) == 1
    node.pause(60.0)
    assert node.beats == [(0.0, 0)]


def test_several_writers_that_are_faster_than_the_server() -> None:
    """At most about 1 MiB waits; then they wait, and all of them go on when there is room again."""
    node = Node(*[Reply([(1.0, answer(503).pieces[0][1])])] * 5)
    ended: list[float] = []

    async def write() -> None:
        for _ in range(100):
            writer.write("x" * 4096)
        ended.append(node.driver.time)

    with node.write() as writer:
        for _ in range(3):
            node.driver.background(write())
        node.pause(200.0)
        assert len(ended) == 3
        assert 1004.0 < min(ended) <= max(ended) < 1030.0
    assert sum(len("".join(parts)) for _, parts, _ in node.pieces) == 4096 * 300


def test_an_answer_whose_beginning_has_expired() -> None:
    """Nobody can go on: the writer raises, and readers that have all of it get an error instead of silence."""
    node = Node()
    node.published += [(0.0, {"piece": number, "parts": ["x"]}) for number in (3, 5)]
    with pytest.raises(AnswerCutOff, match="piece 0 of a is missing"):
        node.write(resume=True).__enter__()
    assert node.published[-1][1] == {"piece": 6, "parts": [], "end": "error", "error": "The answer was interrupted."}


def test_a_writer_that_begins_again_asks_the_node_that_took_its_beat() -> None:
    """Others may lack what was published last."""
    node = Node()
    node.published.append((0.0, {"piece": 0, "parts": ["x"]}))
    node.driver.scripts["b"] = node.driver.scripts["a"]
    node.driver.scripts["a"] = iter([REFUSED] * 100)
    with Client(["unix:a", "unix:b"], driver=node.driver).answer("a", resume=True) as writer:
        assert writer.text == "x"
    assert [(sent.node, sent.target) for sent in node.driver.sent[:2]] == [("b", "/v1/messages"), ("b", "/v1/poll")]
    assert [beat for _, beat in node.beats] == [0, 1]


def test_an_answer_that_has_expired() -> None:
    """Its keys are remembered: the writer raises, and readers get an error instead of silence."""
    node = Node()
    with node.write() as writer:
        writer.write("x")
    node.published.clear()
    again = node.write(resume=True)
    again.__enter__()
    again.write("x")
    with pytest.raises(AnswerError, match="has expired"):
        again.__exit__(None, None, None)
    assert [end for _, _, end in node.pieces] == ["error"]
