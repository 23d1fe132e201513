"""The only parts of PushUp that experiments are built from; an import rule in pyproject.toml holds them to it.

Everything else uses the server as its users do: by its command, by HTTP, and by `pushup.client`.

| file | contents | for |
|---|---|---|
| `values` | settings and formats that operators and clients know as well | judging histories, `slow-backend`, titles |
| `server` | the command and the service | servers that are PushUp but for one thing: timed turns, plain writes |
| `edge` | sockets, wait strategies, output buffers | the echo server, `blocked-client` |
| `framework` | the edge, helper pools, service requestors | servers with another application: the game of Hsu §5.1 |
| `application` | the state, the HTTP interface, the parser | multithreaded long polling |
"""
