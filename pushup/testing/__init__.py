"""For the tests of applications that publish: docs/guide/testing.md. The product does not import it.

| file | what |
|---|---|
| `in_process.py` | `InProcess`: a server in the process of the test, without sockets; its time passes at once |
| `recorder.py` | `Recorder`: a client, and what was published |
| `server_process.py` | a real server in its own process, which can be started anew in milliseconds |
| `in_memory.py` | sockets, a reactor and a demultiplexer in memory |
| `versions.py` | refuses a client of another version |
| `pytest_plugin.py` | the fixtures `pushup_url` and `pushup` for pytest, which finds them by itself |

`python -m pushup.testing` is the process of `server_process`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pushup.testing.in_process import InProcess
    from pushup.testing.recorder import Recorder

__all__ = ["InProcess", "Recorder"]


def __getattr__(name: str) -> Any:
    """Imported late: pytest loads this package in each of its runs, and Twisted takes a while."""
    if name == "InProcess":
        from pushup.testing.in_process import InProcess

        return InProcess
    if name == "Recorder":
        from pushup.testing.recorder import Recorder

        return Recorder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
