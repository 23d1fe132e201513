"""Places in the order of everything."""

from __future__ import annotations

import pytest

from loadtest.history.events import BrokenPromise
from loadtest.history.order import Order


def test_places_are_ordered_by_epoch_and_then_by_sequence() -> None:
    """Longer epochs are later; a dash in an epoch's name belongs to it; sequences are numbers."""
    place = Order().place
    assert place("e2-9") < place("e2-10") < place("e3-0") < place("e10-0")
    assert place("a-b-7") == (3, "a-b", 7)


def test_an_epoch_that_goes_on_has_the_same_places() -> None:
    order = Order()
    order.learn("e2-8", ["e1-7"])
    assert order.place("e1-7") < order.place("e2-8") < order.place("e1-9")
    order.learn("e4-9", ["e3-8"])
    order.learn("e3-8", ["e2-8"])
    assert order.place("e4-9") == order.place("e1-9")


def test_an_earlier_epoch_never_comes_after_a_later_one() -> None:
    with pytest.raises(BrokenPromise, match="one order: e1-9 comes after e2"):
        Order().learn("e1-9", ["e2-3"])


def test_a_name_between_two_of_an_order_is_one_of_it() -> None:
    """Nobody need have had a cursor of it: a server may start twice before anybody polls."""
    order = Order()
    order.learn("e5-8", ["e1-7"])
    assert order.place("e1-7") < order.place("e3-8") < order.place("e5-9")
    assert order.place("e6-1") > order.place("e5-99")


def test_an_epoch_may_have_an_earlier_name_than_the_one_before() -> None:
    """Only if the history says so; whatever comes later is after both."""
    order = Order()
    order.begins("e2", "e5")
    order.begins("e3", "e2")
    order.begins("e6", "e3")
    order.begins("e6", "e6")
    place = order.place
    assert place("e1-9") < place("e4-9") < place("e5-9") < place("e2-1") < place("e2-2") < place("e3-1") < place("e6-1")
    order.learn("e3-9", ["e2-8"])
    assert place("e2-3") < place("e3-4") < place("e6-0")
    with pytest.raises(BrokenPromise, match="one order: e5-9 comes after e2"):
        order.learn("e5-9", ["e2-3"])


def test_an_epoch_from_before_the_order_was_put_back() -> None:
    """It is not a part of what continues the order that was put back, though its name lies between."""
    order = Order()
    order.put_back("1-5", ["1-9", "2-3"])
    order.learn("3-6", ["1-4"])
    assert order.place("3-6") == order.place("1-6")
    assert order.place("2-6") != order.place("1-6")
