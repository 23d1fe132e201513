"""Whether the client in this environment is that of the server (docs/internals/decisions/0034-two-distributions.md)."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from pushup import __version__


def check_versions() -> None:
    """Raises: RuntimeError if pushup and pushup-client are both installed, in two versions."""
    try:
        client = version("pushup-client")
    except PackageNotFoundError:
        return
    if client != __version__:
        raise RuntimeError(
            f"pushup {__version__} and pushup-client {client} share files, so they must have the same version; install "
            f"pushup-client[testing]=={client}, or pushup-client=={__version__}"
        )
