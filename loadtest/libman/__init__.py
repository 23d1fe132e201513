"""Libman & Gilbourd: the same echo server on a reactor, an emulated proactor and a true one (Figures 1 and 2).

| file | contents |
|---|---|
| `channel` | the paper's interface: `AsynchHandler`, `AsynchChannel`, `OpRead`, `OpWrite`, and what an engine does |
| `engines/` | who reads and writes: the handler, the engine or the kernel |
| `wait/` | how the first two wait: select, poll, epoll level-triggered, epoll edge-triggered |
| `handlers` | the echo server's handlers: one for a reactor, one for all proactors |
| `server` | the server's process |
| `pushup_server` | the same echo on PushUp's own demultiplexer |
| `client`, `client.c` | a stream of messages on each of N connections |
| `experiment`, `native_experiment`, `runs` | the measurements: all of them in Python, all in C, and one |
| `idle_connections` | select, poll and epoll with thousands of idle connections and few busy ones |
| `claims` | what becomes of the paper's claims |

The paper's system is TProactor in C++ and Java on Windows XP and Linux 2.4. Here it is C and Python on Linux: io_uring
stands for Windows's completion ports, and nothing stands for Java and C#. The echo server in C, with all engines, is in
`native/`:

| in C | contents |
|---|---|
| `server` | the server's process: its flags and its loop |
| `reactor`, `reactive_echo` | the engine that reports readiness, and its handler, which reads and writes |
| `proactor`, `echo` | what all proactors share, and their handler |
| `emulated`, `uring`, `posix_aio` | the proactors: the engine, the kernel and glibc's threads read and write |
| `pool` | a pool of threads that call a proactor's handlers |
| `wait_select`, `wait_poll`, `wait_epoll`, `wait_signals` | how reactor and emulated proactor wait |
"""
