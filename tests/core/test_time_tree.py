"""The time tree: items sorted by the time they are due."""

from __future__ import annotations

import gc
from time import process_time

from hypothesis import given, settings
from hypothesis import strategies as st
from sortedcontainers import SortedDict

from pushup.core.time_tree import TimeTree


def tree_of(*items: tuple[float, str]) -> TimeTree[str]:
    tree: TimeTree[str] = TimeTree()
    for time, item in items:
        tree.add(time, item)
    return tree


def pop_all(tree: TimeTree[str], now: float) -> list[str]:
    popped = []
    while (item := tree.pop_due(now)) is not None:
        tree.check()
        popped.append(item)
    return popped


def state(tree: TimeTree[str]) -> tuple[list[str], float | None]:
    return list(tree), tree.first_time


def has_sorted_dict(tree: TimeTree[str]) -> bool:
    """Whether one is in memory for this tree."""
    return any(isinstance(each, SortedDict) for each in gc.get_referents(tree))


def test_an_empty_tree_has_nothing() -> None:
    tree = tree_of()
    assert not tree
    assert (len(tree), list(tree), tree.first_time, tree.pop_due(1e9)) == (0, [], None, None)


def test_a_tree_of_one_returns_its_item_when_it_is_due() -> None:
    tree = tree_of((5.0, "a"))
    assert tree
    assert (len(tree), list(tree), tree.first_time) == (1, ["a"], 5.0)
    assert tree.pop_due(4.999) is None
    assert tree.pop_due(5.0) == "a"
    assert not tree
    assert state(tree) == ([], None)
    tree.add(3.0, "b")
    assert state(tree) == (["b"], 3.0)


def test_the_same_item_at_the_same_time_is_kept_once() -> None:
    tree = tree_of((5.0, "a"), (5.0, "a"))
    assert list(tree) == ["a"]
    tree = tree_of((5.0, "a"), (5.0, "b"), (5.0, "a"), (5.0, "b"))
    assert list(tree) == ["a", "b"]


def test_one_item_needs_no_tree() -> None:
    """Most channels have one subscription or none, and a `SortedDict` takes 1.9 KB."""
    tree = tree_of((5.0, "a"), (5.0, "a"))
    assert not has_sorted_dict(tree)
    tree.discard(5.0, "a")
    tree.add(7.0, "b")
    assert not has_sorted_dict(tree)
    tree.add(7.0, "c")
    assert has_sorted_dict(tree)


def test_an_item_may_be_due_at_several_times() -> None:
    """The same item at two times is two entries, whichever was first."""
    assert list(tree_of((3.0, "a"), (5.0, "a"))) == ["a", "a"]
    tree = tree_of((5.0, "a"), (3.0, "a"))
    assert (len(tree), list(tree)) == (2, ["a", "a"])
    tree.discard(5.0, "a")
    assert state(tree) == (["a"], 3.0)


def test_items_come_out_earliest_first_and_then_in_the_order_they_were_added() -> None:
    tree = tree_of((2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b"), (3.0, "e"))
    assert list(tree) == ["a", "b", "c", "d", "e"]
    assert pop_all(tree, now=2.0) == ["a", "b", "c", "d"]
    assert state(tree) == (["e"], 3.0)


def test_discard_removes_exactly_the_given_item() -> None:
    tree = tree_of((1.0, "a"))
    tree.discard(0.5, "a")
    tree.discard(2.0, "a")
    tree.discard(1.0, "b")
    assert list(tree) == ["a"]
    tree.add(2.0, "b")
    tree.discard(1.0, "b")
    tree.discard(9.0, "a")
    assert list(tree) == ["a", "b"]
    tree.discard(1.0, "a")
    tree.discard(2.0, "b")
    tree.check()
    assert not tree
    assert state(tree) == ([], None)


def test_very_many_items_at_one_time_come_out_in_linear_time() -> None:
    """The last of 100,000 items costs as much as the first: 0.05 s in total, not 5 s."""
    tree: TimeTree[int] = TimeTree()
    for item in range(100_000):
        tree.add(5.0, item)
    began = process_time()
    popped = [tree.pop_due(5.0) for _ in range(100_000)]
    assert process_time() - began < 1.5
    assert popped == list(range(100_000))


times = st.integers(0, 4).map(float)
steps = st.lists(
    st.tuples(st.sampled_from(["add", "discard", "pop", "pop last"]), times, st.sampled_from("abc")), max_size=40
)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(steps)
def test_a_tree_behaves_like_a_sorted_list(steps: list[tuple[str, float, str]]) -> None:
    """After any steps the tree has the items of a list that is stably sorted by time."""
    tree = tree_of()
    naive: list[tuple[float, str]] = []
    for step, time, item in steps:
        if step == "add":
            tree.add(time, item)
            if (time, item) not in naive:
                naive.append((time, item))
        elif step == "discard":
            tree.discard(time, item)
            naive = [pair for pair in naive if pair != (time, item)]
        elif step == "pop last":
            assert tree.pop_last() == (naive.pop()[1] if naive else None)
        else:
            due = [pair for pair in naive if pair[0] <= time]
            first = min(due, key=lambda pair: pair[0], default=None)
            assert tree.pop_due(time) == (first[1] if first else None)
            naive = [pair for pair in naive if pair != first]
        naive.sort(key=lambda pair: pair[0])
        tree.check()
        assert list(tree) == [item for _, item in naive]
        assert len(tree) == len(naive)
        assert bool(tree) == bool(naive)
        assert tree.first_time == (naive[0][0] if naive else None)
