"""PushUp: a dedicated long-polling publish/subscribe service.

| file | what it does |
|---|---|
| `core/` | channels, messages, subscriptions: pure, without Twisted, clock or I/O |
| `broadcast/` | one order of all entries, the same for every node |
| `node/` | joins state, held polls, clock and broadcast |
| `net/` | HTTP, down to the sockets |
| `backends/` | everything that could block, such as asking the application who may poll |
| `tokens/` | signed tokens: whose are accepted, and what they allow |
| `settings/` | reads the settings from all places, and checks them |
| `workers/` | several processes behind the addresses of one server |
| `host/` | what concerns the process and its machine: limits, the log, systemd, checks before the start |
| `transport/` | bytes between processes, and to other servers |
| `client/` | the Python client |
| `webhooks/` | tells an application whether a call is from PushUp |
| `outbox/` | publishes the rows of an application's database; imports only the client |
| `frameworks/` | live lists in Django, FastAPI and Flask, over the client |
| `browser/` | the client for web pages: `pushup.js` |
| `dashboard/` | the page for operators |
| `testing/` | for the tests of applications: fixtures for pytest, and a server without sockets |
| `cli/` | the command line |
| `parts` | the parts that the settings choose: the broadcast, the node, and who authorizes polls |
| `service` | builds, starts and stops a server, on one page: what starts first is in its table |
| `listening` | accepts clients, from when a server is to |
| `service_tree` | services that start and stop in an order |
| `metrics` | the counters, and their Prometheus text |
| `clock` | the monotonic clock for waiting, with one timer for many deadlines; the steady time of messages |
| `secret_files` | reads keys and passwords from files |

docs/internals/architecture.md follows a publication, a poll and an expiry through these files.
"""

__version__ = "0.1.0"
