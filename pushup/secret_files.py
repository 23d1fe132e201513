"""Secrets in files of their own, because arguments are seen by everybody (`ps`) and the environment is inherited.

Errors name the file and never show what is in it. Such a file is small and local: reading it blocks for microseconds.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

SIZE_LIMIT_BYTES = 64 * 1024
"""1,000 keys. What is larger is not such a file."""

_COMMENT = re.compile(r"(^|\s)#.*")


class SecretFileError(Exception):
    """The file cannot be used; the text names it and says why."""


def read_secret(path: Path) -> str:
    """The only line of a file, without white space at its ends.

    Raises: SecretFileError.
    """
    text = _read(path).strip()
    if not text:
        raise SecretFileError(f"{path} is empty")
    if len(text.splitlines()) > 1:
        raise SecretFileError(f"{path} has more than one line")
    return text


def read_secrets(path: Path) -> tuple[str, ...]:
    """The keys in a file, one a line; `#` and what follows it on a line is a comment, and empty lines do not count.

    Raises: SecretFileError, also when there is none: a file that is just being written must not open a server to all.
    """
    found = tuple(filter(None, (_COMMENT.sub("", line).strip() for line in _read(path).splitlines())))
    if not found:
        raise SecretFileError(f"there is no key in {path}")
    return found


def is_open_to_all(path: Path) -> bool:
    """Whether every user of the machine may read or change the file.

    Its group does not count: root gives a file to a service's user that way.
    """
    try:
        return bool(path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))
    except OSError:
        return False


def _read(path: Path) -> str:
    """Raises: SecretFileError."""
    try:
        # A pipe would keep us waiting, and has nothing for the second who reads it.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SecretFileError(f"{path} is not a regular file")
            data = file.read(SIZE_LIMIT_BYTES + 1)
    except OSError as error:
        raise SecretFileError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > SIZE_LIMIT_BYTES:
        raise SecretFileError(f"{path} is larger than {SIZE_LIMIT_BYTES // 1024} KiB; is it the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SecretFileError(f"{path} is not UTF-8 text") from None
