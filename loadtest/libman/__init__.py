"""Libman & Gilbourd: the same echo server on a reactor, an emulated proactor and a true one (Figures 1 and 2).

| file | contents |
|---|---|
| `channel` | the paper's interface: `AsynchHandler`, `AsynchChannel`, `OpRead`, `OpWrite`, and what an engine does |
| `engines/` | who reads and writes: the handler, the engine or the kernel |
| `wait/` | how the first two wait: select, poll, epoll level-triggered, epoll edge-triggered |
| `handlers` | the echo server's handlers: one for a reactor, one for all proactors |
| `server` | the server's process |
| `pushup_server` | the same echo on PushUp's own demultiplexer |
| `client` | a stream of messages on each of N connections |
| `experiment`, `runs` | the measurements: all of them, and one |
| `claims` | what becomes of the paper's claims |

The paper's system is TProactor in C++ and Java on Windows XP and Linux 2.4. Everything here is Python on Linux:
io_uring stands for Windows's completion ports, and nothing stands for Java and C#.
"""
