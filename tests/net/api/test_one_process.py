"""What is asked about the whole server, of one process."""

from __future__ import annotations

from pushup.net.api.node_interface import OneProcess


def test_one_process_answers_at_once() -> None:
    """With its own metrics, as of now, and its own subscribers."""
    text = b"first"
    process = OneProcess(lambda: text, {"a": 3, "b": 0}.__getitem__)
    texts: list[bytes] = []
    counts: list[list[int]] = []
    process.metrics(texts.append)
    text = b"second"
    process.metrics(texts.append)
    process.subscribers(["b", "a"], counts.append)
    process.subscribers([], counts.append)
    assert (texts, counts) == ([b"first", b"second"], [[0, 3], []])
