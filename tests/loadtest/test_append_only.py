"""Parts of an append-only file: what is left of it, and what is not."""

from __future__ import annotations

from pathlib import Path

import hiredis

from loadtest.beyond.append_only import last_increment, pieces, saved_sequence, without_last_pieces, without_last_save


def command(*words: str) -> bytes:
    return bytes(hiredis.pack_command(words))  # type: ignore[arg-type]  # the stubs allow only one word


def script(*commands: bytes) -> bytes:
    """The effects of a script, as Redis writes them."""
    return command("MULTI") + b"".join(commands) + command("EXEC")


def entry(sequence: int) -> bytes:
    log = command("XADD", "{pushup}:5:log", f"{sequence}-0", "body", "*2\r\n$4\r\nEXEC\r\n")
    return script(log, command("HSET", "{pushup}:5:state", "sequence", str(sequence), "tag", "saved"))


def save(sequence: int) -> bytes:
    return script(
        command("HSET", "{pushup}:5:rows", f"messages/{sequence}", "{}"),
        command("HSET", "{pushup}:5:state", "saved", str(sequence), "checkpoint", "{}", "rows", "1"),
    )


LEASE = command("ZADD", "{pushup}:5:leases", "1", "a")


def test_the_last_save_is_cut_out() -> None:
    """And only that: what came before and after it stays, byte by byte."""
    data = entry(1) + save(1) + LEASE + entry(2) + LEASE + save(2) + LEASE + LEASE
    assert saved_sequence(data) == 2
    assert without_last_save(data) == entry(1) + save(1) + LEASE + entry(2) + LEASE + LEASE + LEASE


def test_a_save_that_entries_have_followed_stays() -> None:
    """Then more would be missing than the save: the log was trimmed by what it says."""
    assert without_last_save(save(1) + entry(2) + LEASE) is None
    assert without_last_save(LEASE) is None


def test_a_file_is_cut_between_commands() -> None:
    """A transaction is one piece, and one that is not complete is left out."""
    data = LEASE + entry(1) + LEASE + entry(2)
    assert [(piece.begin, piece.end) for piece in pieces(data + entry(3)[:-5])][-1][1] == len(data)
    assert without_last_pieces(data, 0.5) == LEASE + entry(1)
    assert without_last_pieces(data, 0.0) == b""
    assert without_last_pieces(data, 1.0) == data


def test_the_file_that_redis_writes_to(tmp_path: Path) -> None:
    """The last increment in the manifest."""
    folder = tmp_path / "appendonlydir"
    folder.mkdir()
    names = [f"appendonly.aof.{number}.incr.aof" for number in (1, 2)]
    lines = ["file appendonly.aof.1.base.rdb seq 1 type b", *[f"file {n} seq 1 type i" for n in names]]
    (folder / "appendonly.aof.manifest").write_text("\n".join(lines) + "\n")
    assert last_increment(tmp_path) == folder / names[1]
