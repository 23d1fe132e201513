"""PushUp: a dedicated long-polling publish/subscribe service.

    core/       channels, messages, subscriptions: pure, no Twisted, no clock, no I/O
    broadcast/  the one order of all entries, for every node the same
    net/        everything HTTP, down to the socket
    node        the meeting point of queue, clock and broadcast
    service     joins all parts on one page
    settings (with secret_files), surroundings: what a server is told, and whether it can run here
    tls, supervisor, logs, metrics, timer, client, cli

The three journeys, of a publication, a poll and an expiry: docs/architecture.md.
"""

__version__ = "0.1.0"
