"""Hsu & Wu, "An event-driven framework for inter-user communication applications".

| file | contents |
|---|---|
| `blocked_client` | §5.2, Figure 15: a client's link is blocked; how long do the others wait? |
| `blocked_client_server` | its server: PushUp, with the output buffer or without |
| `slow_backend` | §4.3, the limited service problem: a slow backend, and the clients that do not need it |
| `slow_authorizer` | that backend |
"""
