"""Set up the virtual environment that the Makefile uses: `python3 deploy/environment.py .venv run`.

A working environment is kept, whoever made it. A broken one is moved aside, not deleted, with a message that says why.
This script imports only the standard library, and does nothing if everything is up to date.
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
"""What can be requested, and the extras it needs; each includes the ones before it."""

_PROBE = """
import json, sys
try:
    import pip
except ImportError:
    pip = None
print(json.dumps([sys.version_info[:3], sys.prefix != sys.base_prefix, pip is not None]))
"""


class EnvironmentFailed(Exception):
    """The environment cannot be set up; the text says what to do."""


def set_up(environment: Path, wanted: str, project: Path) -> None:
    """Create the environment unless there is a working one, and install the project with the extras for `wanted`.

    Raises: EnvironmentFailed.
    """
    reason = why_not_usable(environment)
    if reason is not None:
        if environment.exists() or environment.is_symlink():
            aside = environment.with_name(environment.name + ".old")
            _say(f"{environment} cannot be used: {reason}. Moving it to {aside} and creating a new one.")
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
        f"pip could not install all packages for Python {_version(environment)}; see its messages above. "
        "A package without a wheel for this Python needs a compiler",
        PUSHUP_COMPILE="0",  # an editable installation is interpreted: spare it the download of mypyc
    )
    for name, stamp in stamps.items():
        stamp.write_text(fingerprint)
        if name == wanted:
            break


def why_not_usable(environment: Path) -> str | None:
    """Why this environment cannot be used; None if it can. Installs pip if only that is missing."""
    python = _python(environment)
    if not environment.exists():
        return "it does not exist"
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
    """The environment that its scripts point to, if that is another one: they contain the absolute path of Python."""
    scripts = environment / "bin"
    for script in (scripts / "pip", scripts / "pip3"):
        if script.is_file():
            head = script.read_bytes()[:4096].decode(errors="replace")
            words = head.replace('"', " ").replace("'", " ").removeprefix("#!").split()
            for word in words[:4]:  # if the path is long, the script starts with #!/bin/sh and exec
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
    _say(f"Creating {environment} with Python {_dotted(sys.version_info[:3])}")
    _run([sys.executable, "-m", "venv", str(environment)], f"{environment} could not be created; see above")


def _install_venv() -> None:
    """Install the separate Debian package that `python3 -m venv` needs. Raises: EnvironmentFailed."""
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    advice = f"{sys.executable} cannot create virtual environments; on Debian and Ubuntu, install {package}"
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    if not all(map(shutil.which, [*sudo, "apt-get"])):
        raise EnvironmentFailed(advice)
    _run([*sudo, "apt-get", "update", "-qq"], advice)
    _run([*sudo, "apt-get", "install", "-y", "-qq", package], advice)


def _fingerprint(environment: Path, project: Path) -> str:
    """Identifies what was installed: the packages are outdated when this changes."""
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


def _run(command: Sequence[str], failure: str, **variables: str) -> None:
    """Raises: EnvironmentFailed, with the text `failure`, if the command fails. `variables`: of its environment."""
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env={**os.environ, **variables})
    except (OSError, subprocess.CalledProcessError):
        raise EnvironmentFailed(failure) from None


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
