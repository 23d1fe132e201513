"""For each promise: a history that breaks it is noticed, and the nearest one that keeps it passes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest

from tests.orders.checker import BrokenPromise, Checker


def history(*names: str, keep: int = 6) -> Checker:
    """A subscriber `s` of channels `a` and `b`, and acknowledged publications: `p1:a` is one on channel `a`."""
    checker = Checker(keep)
    checker.subscribes("s", ("a", "b"), is_earliest=False)
    checker.answered("s", (), ())
    for number, name in enumerate(names, 1):
        publish(checker, name, f"e-{number}")
    return checker


def publish(checker: Checker, name: str, id_: str) -> None:
    checker.publishes(name, {name: (name.partition(":")[2],)})
    checker.acknowledged(name, (id_,))


def message(name: str, number: int) -> tuple[str, str, tuple[str, ...]]:
    return f"e-{number}", name, (name.partition(":")[2],)


def outcome(broken: str) -> AbstractContextManager[object]:
    return pytest.raises(BrokenPromise, match=broken) if broken else nullcontext()


@pytest.mark.parametrize(("received", "broken"), [(("p1:a", "p2:b"), ""), (("p1:a",), "delivered or covered")])
def test_a_message_is_delivered(received: tuple[str, ...], broken: str) -> None:
    """An acknowledged one, to whoever was there before."""
    checker = history("p1:a", "p2:b")
    checker.answered("s", tuple(message(name, n) for n, name in enumerate(received, 1)), ())
    with outcome(broken):
        checker.end()


@pytest.mark.parametrize(("channel", "broken"), [("a", ""), ("b", "delivered or covered")])
def test_a_loss_has_to_be_told_on_its_channel(channel: str, broken: str) -> None:
    """A gap on another channel covers nothing."""
    checker = history("p1:a")
    checker.loses(frozenset("ab"))
    checker.answered("s", (), ((channel, "lost"),))
    with outcome(broken):
        checker.end()


@pytest.mark.parametrize(("lost", "broken"), [("a", ""), ("b", "a gap is true")])
def test_nothing_is_called_lost_without_a_loss(lost: str, broken: str) -> None:
    """A loss elsewhere is none here."""
    checker = history("p1:a")
    checker.loses(frozenset(lost))
    with outcome(broken):
        checker.answered("s", (), (("a", "lost"),))


@pytest.mark.parametrize(("keep", "broken"), [(1, ""), (2, "a gap is true")])
def test_a_message_is_kept(keep: int, broken: str) -> None:
    """A gap says that it was evicted: then enough must have come later."""
    checker = history("p1:a", "p2:a", keep=keep)
    with outcome(broken):
        checker.answered("s", (message("p2:a", 2),), (("a", "evicted"),))
        checker.end()


@pytest.mark.parametrize(("again", "broken"), [(False, ""), (True, "once")])
def test_nothing_comes_twice(again: bool, broken: str) -> None:
    """Not even in another answer."""
    checker = history("p1:a")
    checker.answered("s", (message("p1:a", 1),), ())
    with outcome(broken):
        checker.answered("s", (message("p1:a", 1),) * again, ())


def test_after_a_loss_messages_may_come_again() -> None:
    """The subscriber was told."""
    checker = history("p1:a")
    checker.answered("s", (message("p1:a", 1),), ())
    checker.loses(frozenset("a"))
    checker.answered("s", (message("p1:a", 1),), (("a", "lost"),))
    checker.end()


@pytest.mark.parametrize(("order", "broken"), [((1, 2), ""), ((2, 1), "one order")])
def test_each_log_has_one_order(order: tuple[int, ...], broken: str) -> None:
    """Also over several channels."""
    checker = history("p1:a", "p2:b")
    names = {1: "p1:a", 2: "p2:b"}
    with outcome(broken):
        checker.answered("s", tuple(message(names[n], n) for n in order), ())


@pytest.mark.parametrize(("ids", "broken"), [(("e-5", "f-1"), ""), (("f-1", "e-5"), "one order")])
def test_each_channel_has_one_order(ids: tuple[str, str], broken: str) -> None:
    """What is published after an acknowledgement comes later, in whichever log."""
    checker = history()
    publish(checker, "p1:a", "e-5")
    publish(checker, "p2:a", "f-1")
    data = {"e-5": "p1:a", "f-1": "p2:a"}
    checker.answered("s", tuple((id_, data[id_], ("a",)) for id_ in ids), ())
    with outcome(broken):
        checker.end()


@pytest.mark.parametrize(("received", "broken"), [((), ""), (("x", "y"), ""), (("x",), "whole")])
def test_a_publication_comes_whole_or_not(received: tuple[str, ...], broken: str) -> None:
    """Also one whose publisher was told nothing."""
    checker = history()
    checker.publishes("p", {"x": ("a",), "y": ("b",)})
    channels = {"x": "a", "y": "b"}
    checker.answered("s", tuple((f"e-{n}", data, (channels[data],)) for n, data in enumerate(received)), ())
    with outcome(broken):
        checker.end()


@pytest.mark.parametrize(
    ("ids", "broken"), [(("e-1", "e-2"), ""), (("e-1", "e-3"), "whole"), (("e-1", "f-2"), "whole")]
)
def test_the_messages_of_a_publication_are_next_to_each_other(ids: tuple[str, str], broken: str) -> None:
    """In one log."""
    checker = history()
    checker.publishes("p", {"x": ("a",), "y": ("a",)})
    with outcome(broken):
        checker.acknowledged("p", ids)


@pytest.mark.parametrize(("refused", "broken"), [(False, ""), (True, "refused")])
def test_a_refused_publication_reaches_nobody(refused: bool, broken: str) -> None:
    """It changes nothing."""
    checker = history()
    checker.publishes("p", {"x": ("a",)})
    if refused:
        checker.refused("p")
    with outcome(broken):
        checker.answered("s", (("e-1", "x", ("a",)),), ())
