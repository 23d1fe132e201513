"""Mishra & Yang: a group communication service, event-based and thread-based.

| file | contents |
|---|---|
| `core/` | the protocol, without threads, sockets or clocks |
"""
