"""PushUp: a dedicated long-polling publish/subscribe service.

| file | what it does |
|---|---|
| `core/` | channels, messages and held polls: pure, without Twisted, clock or I/O |
| `broadcast/` | puts all commands in one order, the same for every node |
| `net/` | everything HTTP, from the socket to the API |
| `backends/` | everything that could block: authorizers, helper threads, requests to other servers |
| `node` | joins state, clock and broadcast |
| `service` | builds, starts and stops a whole server |
| `settings`, `secret_files` | read the settings, and the secrets that are kept in files of their own |
| `surroundings` | checks whether this machine can provide what the settings need |
| `supervisor` | reports to systemd: ready, alive, stopping |
| `tls` | TLS to other servers: checks their certificates |
| `logs`, `metrics` | the log; the counters and their Prometheus page |
| `timer` | one reactor timer for many deadlines |
| `cli`, `client` | the command line, and the HTTP client it uses |

How a publication, a poll and an expiry pass through these: docs/architecture.md.
"""

__version__ = "0.1.0"
