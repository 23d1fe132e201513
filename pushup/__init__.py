"""PushUp: a dedicated long-polling publish/subscribe service.

| file | what it does |
|---|---|
| `core/` | channels, messages, subscriptions: pure, without Twisted, clock or I/O |
| `broadcast/` | one order of all entries, the same for every node |
| `net/` | HTTP, down to the sockets |
| `backends/` | everything that could block, such as asking the application who may poll |
| `client/` | the Python client |
| `browser/` | the client for web pages: `pushup.js` |
| `cli/` | the command line |
| `workers/` | several processes behind the addresses of one server |
| `node` | joins state, clock and broadcast |
| `drain` | answers the held polls of a stopping node over some time |
| `held_by_subject` | the held polls and streams of each user |
| `expiry` | lets what is due in the shared state expire |
| `parts` | the parts that the settings choose: the broadcast, the node, and who authorizes polls |
| `process` | file descriptors, and the garbage collector |
| `service` | builds, starts and stops a server, on one page: what starts first is in its table |
| `service_tree` | services that start and stop in an order |
| `host` | what a server stands on: process, clocks, disk, network |
| `settings` | reads the settings from all places, and checks them |
| `server_settings` | the settings of the server as a whole; those of a part are in its module |
| `setting_values` | converts values: units, sizes, lists, tables |
| `channel_policies` | checks what is set for channels with some prefix |
| `secret_files` | reads keys and passwords from files |
| `surroundings` | checks that this machine provides what the settings need |
| `supervisor` | notifies systemd |
| `logs`, `log_options` | the log, and its levels and formats |
| `metrics` | the counters, and their Prometheus text |
| `form` | the commit of this build, and whether it is compiled |
| `clock` | the monotonic clock for waiting, the steady time of messages |
| `timer` | one reactor timer for many deadlines |
| `tls` | TLS connections to other servers |
| `link` | frames between the processes of one machine |
| `shared_transport` | a connection to Redis that is read together with the clients' |

docs/architecture.md follows a publication, a poll and an expiry through these files.
"""

__version__ = "0.1.0"
