"""What the frozen release has stored is read by the tree, and the other way round, if both say that they can.

Without processes: the code of both releases is imported into this one, one after the other.
"""

from __future__ import annotations

import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import Struct, json, structs

from pushup.broadcast.formats import FORMAT
from pushup.broadcast.journal_file import JournalError, JournalFile
from pushup.core.commands import Command
from pushup.core.machine_rules import LATEST_VERSION
from tests.releases import sample
from tests.releases.artifact import FROZEN, TIME, described, is_needed, pack
from tests.releases.release import Release, frozen, of_another_format, sample_of, tree

WHAT_TO_DO = (
    f"{{reader}} reads what {{writer}} has stored as something else, and both say that it has format {FORMAT}. "
    "If what is stored has changed, raise FORMAT in pushup/broadcast/formats.py. If no release has had this format "
    "yet, run `python -m tests.releases freeze`"
)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return frozen(tmp_path_factory.mktemp("releases") / "frozen")


def stored(release: Release, path: Path) -> Any:
    """Have a release write its sample; returns what it reads itself."""
    if release.name == tree().name:
        sample.write(path)
        return sample.read(path)
    with sample_of(release) as theirs:
        theirs.write(path)
        return theirs.read(path)


def read(release: Release, path: Path) -> Any:
    if release.name == tree().name:
        return sample.read(path)
    with sample_of(release) as theirs:
        return theirs.read(path)


def check_that_it_is_read(
    writer: Release, reader: Release, path: Path, spoil: Callable[[Path], None] = lambda _: None
) -> None:
    """If the formats are the same. `spoil`: what else happens to the file."""
    if not reader.follows(writer):
        return
    written = stored(writer, path)
    spoil(path)
    problem = WHAT_TO_DO.format(reader=reader.name, writer=writer.name)
    try:
        found = read(reader, path)
    except Exception as error:
        pytest.fail(f"{problem} ({type(error).__name__}: {error})")
    assert found == written, problem


def test_the_tree_reads_what_the_frozen_release_has_stored(before: Release, tmp_path: Path) -> None:
    """So it can be upgraded."""
    check_that_it_is_read(before, tree(), tmp_path / "journal")


def test_the_frozen_release_reads_what_the_tree_has_stored(before: Release, tmp_path: Path) -> None:
    """So there is a way back, unless the tree has a newer state machine."""
    check_that_it_is_read(tree(), before, tmp_path / "journal")


def _with_an_unknown_field(row: dict[str, Any]) -> None:
    row["unheard_of"] = 1


def _with_another_channel(row: dict[str, Any]) -> None:
    row["channels"] = ["another"]


@pytest.mark.parametrize("change", [_with_an_unknown_field, _with_another_channel])
def test_a_difference_is_noticed(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A row that cannot be read, or is read as another one: the failure says what to do."""

    def spoil(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            query = "SELECT key, body FROM rows WHERE key LIKE 'messages/%' ORDER BY key DESC"
            key, body = database.execute(query).fetchone()
            row = json.decode(body)
            change(row)
            database.execute("UPDATE rows SET body = ? WHERE key = ?", (json.encode(row), key))

    with pytest.raises((pytest.fail.Exception, AssertionError), match=rf"has format {FORMAT}\. .*raise FORMAT"):
        check_that_it_is_read(tree(), tree(), tmp_path / "journal", spoil)


def test_the_tree_refuses_another_format(tmp_path: Path) -> None:
    """And a release of another format what the tree has stored; the text names both."""
    other = of_another_format(tmp_path / "release")
    for writer, reader in ((other, tree()), (tree(), other)):
        path = tmp_path / writer.name
        stored(writer, path)
        content = path.read_bytes()
        with pytest.raises(Exception, match=reader.reason_against(writer)[0]) as raised:
            read(reader, path)
        assert type(raised.value).__name__ == JournalError.__name__
        assert path.read_bytes() == content


def test_everything_that_is_stored_is_in_the_sample(tmp_path: Path) -> None:
    """Every command and rows of every table, and none of their fields is left out because it has its default.

    So what is new has to be added to `sample.py`, and goes into the next artifact.
    """
    assert {type(command) for command in sample.ADDED} == set(get_args(Command))
    sample.write(tmp_path / "journal")
    with closing(JournalFile(tmp_path / "journal")) as file:
        checkpoint = file.load()
    assert checkpoint is not None
    rows = [list(table) for table in checkpoint.tables.all()]
    assert all(rows)
    for values in (sample.ADDED, rows, checkpoint.head):
        for struct, names in written_fields(values).items():
            left_out = {field.encode_name for field in structs.fields(struct)} - names
            assert not left_out, f"{struct.__name__} of the sample is always without {left_out}"


def written_fields(value: object) -> dict[type[Struct], set[str]]:
    """The fields that are written of at least one struct of each type in this value."""
    found: dict[type[Struct], set[str]] = {}
    if isinstance(value, Struct):
        if not value.__struct_config__.array_like:
            found[type(value)] = set(json.decode(json.encode(value)))
        value = [getattr(value, name) for name in value.__struct_fields__]
    for part in value if isinstance(value, (list, tuple)) else ():
        for struct, names in written_fields(part).items():
            found[struct] = found.get(struct, set()) | names
    return found


def test_another_release_is_imported_and_forgotten(before: Release) -> None:
    """Beside the tree's modules, which stay."""
    import pushup.core.state as ours

    with sample_of(before) as theirs:
        assert theirs.about() == {name: value for name, value in described().items() if name != "commit"}
        assert theirs.ReplicatedState is not ours.ReplicatedState
    import pushup.core.state as again

    assert again is ours
    assert sample.about()["format"] == FORMAT
    assert sample.about()["version"] == LATEST_VERSION


def test_the_artifact(tmp_path: Path) -> None:
    """It contains what a server needs and nothing else, and packed again it is the same."""
    with zipfile.ZipFile(FROZEN) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
        assert {info.date_time for info in archive.infolist()} == {TIME}
    assert list(files) == sorted(files)
    assert all(name == "sample.py" or (name.startswith("pushup/") and is_needed(name)) for name in files)
    again = tmp_path / "again.zip"
    again.write_bytes(pack(dict(reversed(files.items()))))
    with zipfile.ZipFile(again) as archive:
        assert {info.filename: archive.read(info) for info in archive.infolist()} == files
    assert pack(files) == again.read_bytes()
