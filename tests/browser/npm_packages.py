"""Files of packages from npm, of exactly these releases: fetched once, and checked by their hashes."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import tarfile
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

REGISTRY = "https://registry.npmjs.org"

CACHE = Path.home() / ".cache" / "pushup-npm"

SECONDS = 60.0


class Package(NamedTuple):
    """A release; `integrity` is its SHA-512 as the registry and lock files of npm state it."""

    name: str
    version: str
    integrity: str

    def file(self, path: str) -> bytes:
        """A file of the package. Fails if the registry cannot be reached, or the package is another one."""
        with tarfile.open(fileobj=io.BytesIO(self._archive())) as archive:
            found = archive.extractfile(f"package/{path}")
            assert found is not None, f"{self.name} {self.version} has no file {path}"
            return found.read()

    def _archive(self) -> bytes:
        file = f"{self.name.rpartition('/')[2]}-{self.version}.tgz"
        kept = CACHE / file
        if not kept.exists():
            url = f"{REGISTRY}/{self.name}/-/{file}"
            try:
                with urlopen(url, timeout=SECONDS) as response:  # it is https
                    data = response.read()
            except URLError as error:
                raise AssertionError(f"this test needs {url} once, and it cannot be fetched: {error}") from None
            CACHE.mkdir(parents=True, exist_ok=True)
            part = CACHE / f"{file}.{os.getpid()}"
            part.write_bytes(data)
            part.replace(kept)
        data = kept.read_bytes()
        digest = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        assert digest == self.integrity, f"{kept} is not {self.name} {self.version}: its hash is {digest}; remove it"
        return data


HTMX_2 = Package(
    "htmx.org",
    "2.0.11",
    "sha512-Thx/WtpeOQqSrqBCw/A1cwGJGg4UrVa3+sW0GmrM3p4gJgO89ecH4qtbnyzDDWFvBTqjnIMCgELTNt636dtamA==",
)
HTMX_2_SSE = Package(
    "htmx-ext-sse",
    "2.2.4",
    "sha512-LJmxVhykyflBWgh5PvbRidcyuqMHlgfajmmzumvKctv9puvsufeH6OaejSMZTNTnEI8O2wXXn4ZZtBdpEMqmEQ==",
)
