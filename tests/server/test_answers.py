"""Answers that come into being over time, written by both clients to a real server."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest

from pushup.client import AnswerError, AsyncClient, Client, ClientError
from tests.server.conftest import Serve
from tests.server.document_samples import sample
from tests.server.killed_answers import VICTIMS, results
from tests.server.raw_client import WAIT_SECONDS
from tests.server.server_process import Server, running, wait_until
from tests.server.token_issuer import SETTINGS

NDJSON = "application/x-ndjson"


def test_an_answer(serve: Serve) -> None:
    """Its text, its values and its end are read as they were written, however long; a second one is refused."""
    channel = "Ärger: 1 \U0001f600"
    with serve() as server, Client(server.url) as client:
        with client.answer(channel) as answer:
            for number in range(5000):
                answer.write(f" {number}")
            answer.send({"tool": 1})
        state = client.read_answer(channel)
        assert (state.text, state.end) == ("".join(f" {number}" for number in range(5000)), "done")
        assert state.parts[-1] == {"tool": 1}
        with pytest.raises(AnswerError, match="has ended"), client.answer(channel, resume=True):
            pass


def test_a_whole_answer_by_one_request(serve: Serve) -> None:
    """A stream from the beginning, read until the piece with `end`; a poll would have 100 pieces only."""
    text = "".join(f" {number}" for number in range(100_000))
    with serve() as server, Client(server.url) as client:
        with client.answer("a") as answer:
            answer.write(text)
        request = Request(f"{server.url}/v1/events?channel=a&cursor=earliest", headers={"Accept": NDJSON})
        read: list[dict[str, Any]] = []
        with urlopen(request, timeout=WAIT_SECONDS) as stream:
            while not (read and "end" in read[-1]):
                event = json.loads(stream.readline())
                if "piece" in (data := event.get("data", {}).get("data", {})):
                    read.append(data)
    assert [each["piece"] for each in read] == list(range(len(read)))
    assert len(read) > 100
    assert "".join(part for each in read for part in each["parts"]) == text
    assert read[-1]["end"] == "done"


def fail(client: Client) -> None:
    with client.answer("a") as answer:
        answer.write("x")
        raise ZeroDivisionError("secret")


def test_an_answer_that_fails(serve: Serve) -> None:
    """The exception goes on; readers get a neutral text, or the one that was given."""
    with serve() as server, Client(server.url) as client:
        with pytest.raises(ZeroDivisionError, match="secret"):
            fail(client)
        state = client.read_answer("a")
        assert (state.text, state.end) == ("x", "error")
        assert "secret" not in str(state.error)
        with client.answer("b") as answer:
            answer.fail("sorry")
        assert client.read_answer("b").error == "sorry"


def test_a_stop(serve: Serve) -> None:
    """It ends the writing, and the answer says so."""
    with serve() as server, Client(server.url) as client:
        with client.answer("a") as answer:
            answer.write("x")
            client.stop_answer("a")
            wait_until(lambda: answer.stopped, "the stop")
            answer.write("y")
        state = client.read_answer("a")
        assert (state.text, state.end) == ("x", "stopped")


def test_a_producer_that_starts_again(serve: Serve) -> None:
    """With `resume` it goes on after what was published; without, the answer ends with an error."""
    with serve() as server, Client(server.url) as client:
        for channel in ("a", "b"):
            client.publish(channel, {"piece": 0, "parts": ["x"]}, event="answer", idempotency_key=f"{channel}#0")
        with client.answer("a", resume=True) as answer:
            assert answer.text == "x"
            answer.write("y")
        assert (client.read_answer("a").text, client.read_answer("a").end) == ("xy", "done")
        with pytest.raises(AnswerError, match="resume"), client.answer("b"):
            pass
        assert client.read_answer("b").end == "error"


def test_a_producer_that_starts_again_too_late(serve: Serve) -> None:
    """The pieces have expired, but not their keys: it gets an error, and readers see an interruption."""
    with serve(retention_messages=1) as server, Client(server.url) as client:
        with client.answer("a", coalesce=0) as answer:
            answer.write("x")
        client.publish("a", "the only one that is kept")
        answer = client.answer("a", resume=True)
        answer.__enter__()
        answer.write("x")
        with pytest.raises(AnswerError, match="has expired"):
            answer.__exit__(None, None, None)
        state = client.read_answer("a")
        assert (state.text, state.end) == ("", "error")


def test_with_asyncio(serve: Serve) -> None:
    """The same with `async with`."""

    async def write(url: str) -> None:
        async with AsyncClient(url) as client:
            async with client.answer("a") as answer:
                for number in range(5):
                    await answer.write(str(number))
                    await asyncio.sleep(0.02)
            state = await client.read_answer("a")
            assert (state.text, state.end) == ("01234", "done")

    with serve() as server:
        asyncio.run(write(server.url))


def test_a_model_that_blocks_the_event_loop(serve: Serve) -> None:
    """What it wrote is published while it writes: each `write` gives others a turn."""

    async def write(url: str) -> None:
        async with AsyncClient(url) as client, client.answer("a") as answer:
            with Client(url) as reader:
                for _ in range(500):
                    await answer.write("x")
                    time.sleep(0.01)  # as libraries do that are not made for asyncio
                    if reader.read_answer("a").pieces > 2:
                        return
                raise AssertionError("nothing was published before the end")

    with serve() as server:
        asyncio.run(write(server.url))


def test_an_exception_while_the_server_is_gone(serve: Serve) -> None:
    """It is what the block raises, so a cancelled task is cancelled."""

    async def write(server: Server) -> None:
        async with AsyncClient(server.url) as client, client.answer("a") as answer:
            await answer.write("x")
            server.signal(signal.SIGSTOP)
            await asyncio.sleep(60)

    async def cancel(server: Server) -> None:
        task = asyncio.create_task(write(server))
        while server.process.status() != psutil.STATUS_STOPPED:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        server.signal(signal.SIGCONT)
        assert task.cancelled()

    with serve() as server:
        asyncio.run(cancel(server))


# What is killed.


@pytest.mark.parametrize("victim", VICTIMS)
def test_kills(victim: str, tmp_path: Path) -> None:
    """A reader gets each answer whole, whatever was killed; so does a page, unless it says that it was cut off."""
    outcome = results(victim, 2, tmp_path, page=True)
    assert outcome.kills >= 2
    assert outcome.read.keys() == {"whole"}
    assert outcome.shown.keys() <= {"whole", "cut off"}


def test_a_writer_waits_for_a_server_that_is_starting(tmp_path: Path) -> None:
    """It gives up after its patience only."""
    address = f"unix:{tmp_path / 'pushup.sock'}"
    with Client(address, patience=0) as client, ThreadPoolExecutor(1) as pool:
        with pytest.raises(ClientError, match="cannot reach"):
            client.answer("a", patience=0.2).__enter__()
        entered = pool.submit(client.answer("a").__enter__)
        with running(tmp_path / "log", ("--listen", address)):
            entered.result(30).__exit__(None, None, None)
            assert client.read_answer("a").end == "done"


def test_the_largest_pieces(serve: Serve) -> None:
    """The server takes whatever text, and values of 48 KiB."""
    with serve() as server, Client(server.url) as client:
        with client.answer("a") as answer:
            answer.write("\U0001f600\0" * 50_000)
            answer.send(["x" * 49_000])
            answer.send({"x": "\0" * 8_000})
            answer.send({"x": "ж" * 20_000})
        state = client.read_answer("a")
        assert state.parts[-3:] == [["x" * 49_000], {"x": "\0" * 8_000}, {"x": "ж" * 20_000}]
        assert (state.text, state.end) == ("\U0001f600\0" * 50_000, "done")


@pytest.mark.parametrize("private", ["token_issuer", "authorize_url"])
def test_private_channels(serve: Serve, private: str) -> None:
    """The key of docs/guide/answers.md writes, stops and reads an answer that nobody else may read."""
    rights = re.search("`(publish=.*?)`", Path("docs/guide/answers.md").read_text())
    assert rights is not None
    key = "a-key-with-enough-characters"
    settings = SETTINGS if private == "token_issuer" else {"authorize_url": "http://127.0.0.1:9/"}
    with serve(**settings, publish_keys=f"writer {key} {rights[1]}") as server, Client(server.url, key) as client:
        with client.answer("answer:1") as answer:
            answer.write("x")
            client.stop_answer("answer:1")
            wait_until(lambda: answer.stopped, "the stop")
        assert client.read_answer("answer:1").end == "stopped"
        assert list(client.follow_answer("answer:1")) == ["x"]
        if private == "token_issuer":
            with Client(server.url) as stranger, pytest.raises(ClientError, match="401"):
                stranger.read_answer("answer:1")


# The samples of docs/guide/answers.md.


def test_the_first_samples(serve: Serve, tmp_path: Path) -> None:
    """It writes an answer to a server with the settings of the second."""
    text = sample("docs/guide/answers.md", "from pushup.client import Client")
    settings = tmp_path / "pushup.toml"
    settings.write_text(sample("docs/guide/answers.md", "[[channels]]"))
    with serve("--config", str(settings)) as server, Client(server.url) as client:
        exec(text.replace("127.0.0.1:8080", server.address), {})
        state = client.read_answer("answer:42")
        assert (state.text, state.end) == ("Forty-two", "done")


def test_a_long_answer_stays_whole(serve: Serve, tmp_path: Path) -> None:
    """With these settings, while other channels publish much."""
    settings = tmp_path / "pushup.toml"
    settings.write_text(sample("docs/guide/answers.md", "[[channels]]"))
    flags = ("--config", str(settings), "--set", "retention_messages=100", "--set", "retention_bytes=1MiB")
    tokens, others = [f"{number} " for number in range(300)], list[str]()
    with serve(*flags) as server, Client(server.url) as client:
        server.expect_log("retention_bytes is used up: messages on .none. were evicted")
        with client.answer("answer:1", coalesce=0) as answer:
            for token in tokens:
                answer.write(token)
                others.append(client.publish("others", "x" * 10_000).id)
        state = client.read_answer("answer:1")
        assert (state.text, state.end) == ("".join(tokens), "done")
        assert state.pieces > 100
        assert client.poll("others", timeout=0).messages[0].id in others[-99:]
