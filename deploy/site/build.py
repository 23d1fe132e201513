"""Build the site with Sphinx, and put it beside the versions that are published already."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.site.pages import FORGE, stage

SPHINX = Path(__file__).parent / "sphinx"
DEVELOPMENT = "main"
"""The version that is not a release."""

_REDIRECTION = """<!doctype html>
<meta charset="utf-8">
<title>PushUp</title>
<meta http-equiv="refresh" content="0; url={}/">
"""


class SiteFailed(Exception):
    """The site cannot be built; the text is what Sphinx said."""


def build(out: Path, version: str) -> None:
    """Build the pages of this checkout into a new folder. `version` is `main`, or a release such as 1.2.3.

    Raises: SiteFailed if Sphinx has a warning.
    """
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        stage(pages, version if version == DEVELOPMENT else f"v{version}")
        shutil.rmtree(out, ignore_errors=True)
        command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--jobs", "auto"]
        command += ["-c", str(SPHINX), "-d", f"{folder}/read", "-D", f"version={version}", "-A", f"forge={FORGE}"]
        command += [str(pages), str(out)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode or done.stdout:
            raise SiteFailed(done.stdout.replace(f"{pages}/", ""))
        for picture in pages.rglob("*.webp"):  # named in HTML, which Sphinx does not look into
            shutil.copy(picture, out / picture.relative_to(pages))


def publish(site: Path, published: Path, version: str) -> None:
    """Put a built site into the folder of all versions, instead of what it has of the same version."""
    shutil.rmtree(published / version, ignore_errors=True)
    shutil.copytree(site, published / version)
    versions = sorted((file.parent.name for file in published.glob("*/objects.inv")), key=_number, reverse=True)
    (published / "versions.json").write_text(json.dumps(versions))
    (published / "index.html").write_text(_REDIRECTION.format(versions[0]))
    (published / ".nojekyll").touch()  # or GitHub Pages would leave out _static


def _number(version: str) -> tuple[int, ...]:
    """In the order of releases; `main` is before all."""
    return tuple(map(int, re.findall(r"\d+", version)))
