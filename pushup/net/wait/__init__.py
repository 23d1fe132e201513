"""Waiting for sockets: the demultiplexer, and its strategies, which are interchangeable.

| file | what it holds |
|---|---|
| `demultiplexer` | the interface: what a strategy does, and what it needs of a connection |
| `epoll` | the strategy for Linux: one epoll of our own, drained in batches |
| `reactor` | the strategy for every other system: each connection is a reader of the Twisted reactor |
| `dispatch` | reading a connection and calling back, with the errors of one connection contained |
| `strategies` | the table of strategies by name |

A new strategy is a file here and a line in `strategies`.
"""
