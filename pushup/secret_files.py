"""Reads files that contain a secret. Arguments are visible to all users (`ps`), and child processes inherit the
environment, so keys and passwords are better kept in files.

Errors name the file and never show its content. The files are small and local: reading one blocks for microseconds.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

MIN_KEY_LENGTH = 16
"""Minimum number of characters of a key. A shorter one can be guessed."""

SIZE_LIMIT_BYTES = 64 * 1024
"""Room for 1,000 keys. A larger file is probably the wrong one."""

_COMMENT = re.compile(r"(^|\s)#.*")


class SecretFileError(ValueError):
    """The file cannot be used; the text names it and says why."""


def read_secret(path: Path) -> str:
    """The only line of a file, stripped of white space.

    Raises: SecretFileError.
    """
    text = read_text(path).strip()
    if not text:
        raise SecretFileError(f"{path} is empty")
    if len(text.splitlines()) > 1:
        raise SecretFileError(f"{path} has more than one line")
    return text


def read_secrets(path: Path) -> tuple[str, ...]:
    """The keys in a file, one per line, with their names; `#` starts a comment, and empty lines are ignored.

    Raises: SecretFileError, also when there is no key: a file that is just being written must not open a server to all.
    """
    found = tuple(filter(None, (_COMMENT.sub("", line).strip() for line in read_text(path).splitlines())))
    if not found:
        raise SecretFileError(f"{path} contains no key")
    return found


KEY_RIGHTS = ("publish", "channels", "read", "operate", "backup")
"""The rights that may stand behind a publish key, each perhaps with channels: `publish=chat:*`."""


def parts_of_key(line: str) -> tuple[str, str, tuple[str, ...]]:
    """The name, the key and the rights in `NAME KEY publish=chat:*`; a name and rights may be missing.

    Raises: ValueError: "is not valid; ...".
    """
    words = line.split()
    rights: list[str] = []
    while len(words) > 1 and words[-1].partition("=")[0] in KEY_RIGHTS:
        rights.insert(0, words.pop())
    if not words or len(words) > 2:
        raise ValueError("is not valid; write each key on its own, as NAME KEY or KEY, and its rights behind it")
    return "".join(words[:-1]), words[-1], tuple(rights)


def is_open_to_all(path: Path) -> bool:
    """Whether every user of this machine can read or change the file.

    Its group is ignored, because root shares a file with a service's user in this way.
    """
    try:
        return bool(path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))
    except OSError:
        return False


def read_text(path: Path) -> str:
    """The content of a file. Raises: SecretFileError."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SecretFileError(f"{path} is not a regular file")
            data = file.read(SIZE_LIMIT_BYTES + 1)
    except OSError as error:
        raise SecretFileError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > SIZE_LIMIT_BYTES:
        raise SecretFileError(f"{path} is larger than {SIZE_LIMIT_BYTES // 1024} KiB; check that it is the right file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SecretFileError(f"{path} is not UTF-8 text") from None


def _open_without_waiting(path: str, flags: int) -> int:
    """Do not block on a named pipe. It is refused, because it could not be read a second time."""
    return os.open(path, flags | os.O_NONBLOCK)
