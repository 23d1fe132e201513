"""Set up the virtual environment that the Makefile works in: `python3 deploy/environment.py .venv run`.

An environment that works is used, whoever made it. One that does not is moved aside, never deleted, and it is said why.
Nothing but the standard library is imported, and nothing is done when all is there already.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

OLDEST = (3, 11)

EXTRAS = {"run": "", "cluster": "[example]", "test": "[dev]"}
"""What can be asked for, and which optional dependencies that takes; each contains those before it."""

_PROBE = """
import json, sys
try:
    import pip
except ImportError:
    pip = None
print(json.dumps([sys.version_info[:3], sys.prefix != sys.base_prefix, pip is not None]))
"""


class EnvironmentFailed(Exception):
    """It cannot be set up; the text says what to do."""


def set_up(environment: Path, wanted: str, project: Path) -> None:
    """Make the environment if there is none that works, and install the project there with what is wanted.

    Raises: EnvironmentFailed.
    """
    reason = why_not_usable(environment)
    if reason is not None:
        if environment.exists() or environment.is_symlink():
            aside = environment.with_name(environment.name + ".old")
            _say(f"{environment} cannot be used: {reason}. It is moved to {aside}, and a new one is made.")
            _remove(aside)
            environment.rename(aside)
        _make(environment)
    fingerprint = _fingerprint(environment, project)
    stamps = {name: environment / f"{name}.stamp" for name in EXTRAS}
    if stamps[wanted].exists() and stamps[wanted].read_text() == fingerprint:
        return
    _say(f"Installing pushup{EXTRAS[wanted]} into {environment}")
    pip = [_python(environment), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(
        [*pip, "--editable", f"{project}{EXTRAS[wanted]}"],
        f"not everything could be installed for Python {_version(environment)}. pip says above what it was; "
        "it may have no wheel for this Python yet, and then needs a compiler",
    )
    for name, stamp in stamps.items():
        stamp.write_text(fingerprint)
        if name == wanted:
            break


def why_not_usable(environment: Path) -> str | None:
    """Why this is no environment to install into; None if it is one. Puts pip into it if only that is missing."""
    python = _python(environment)
    if not environment.exists():
        return "it is not there"
    if not os.path.lexists(python):
        return "it is not a virtual environment"
    try:
        version, is_virtual, has_pip = json.loads(_output([python, "-I", "-c", _PROBE]))
    except (OSError, subprocess.CalledProcessError, ValueError):
        return "its Python does not start"
    if tuple(version) < OLDEST:
        return f"its Python is {_dotted(version)}, and PushUp needs {_dotted(OLDEST)} or later"
    if not is_virtual:
        return "it is not a virtual environment"
    elsewhere = _made_elsewhere(environment)
    if elsewhere is not None:
        return f"it was made as {elsewhere}, and has been moved or copied since"
    if not has_pip:
        try:
            _output([python, "-m", "ensurepip"])
        except (OSError, subprocess.CalledProcessError):
            return "it has no pip, and its Python cannot install one"
    return None


def _made_elsewhere(environment: Path) -> Path | None:
    """Where its programs look for their Python, if that is not here: they name it by its path."""
    scripts = environment / "bin"
    for script in (scripts / "pip", scripts / "pip3"):
        if script.is_file():
            head = script.read_bytes()[:4096].decode(errors="replace")
            words = head.replace('"', " ").replace("'", " ").removeprefix("#!").split()
            for word in words[:4]:  # of a long path: #!/bin/sh, and then exec
                if "/bin/python" in word and word.startswith("/"):
                    directory = Path(word).parent
                    if not directory.exists() or not directory.samefile(scripts):
                        return directory.parent
    return None


def _make(environment: Path) -> None:
    """Raises: EnvironmentFailed."""
    try:
        _output([sys.executable, "-c", "import ensurepip, venv"])
    except subprocess.CalledProcessError:
        _install_venv()
    _say(f"Making {environment} with Python {_dotted(sys.version_info[:3])}")
    _run([sys.executable, "-m", "venv", str(environment)], f"{environment} could not be made, see above")


def _install_venv() -> None:
    """Debian keeps what `python3 -m venv` needs in a package of its own. Raises: EnvironmentFailed."""
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    told = f"{sys.executable} cannot make virtual environments; on Debian and Ubuntu install {package}"
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    if not all(map(shutil.which, [*sudo, "apt-get"])):
        raise EnvironmentFailed(told)
    _run([*sudo, "apt-get", "update", "-qq"], told)
    _run([*sudo, "apt-get", "install", "-y", "-qq", package], told)


def _fingerprint(environment: Path, project: Path) -> str:
    """What was installed depends on this."""
    settings = zlib.crc32((project / "pyproject.toml").read_bytes())
    return f"{project}\n{_version(environment)}\n{settings:08x}\n"


def _version(environment: Path) -> str:
    return _output([_python(environment), "-I", "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"]).strip()


def _python(environment: Path) -> str:
    return str(environment / "bin" / "python")


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def _run(command: Sequence[str], what_if_not: str) -> None:
    """Raises: EnvironmentFailed."""
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        raise EnvironmentFailed(what_if_not) from None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def main() -> int:
    environment, wanted = sys.argv[1:]
    project = Path(__file__).resolve().parent.parent
    try:
        set_up(project / environment, wanted, project)
    except EnvironmentFailed as error:
        _say(f"Error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
