"""The pure core: channels, messages, subscriptions. No Twisted, no clock, no I/O.

| file | what it defines |
|---|---|
| `message_queue` | the message queue: `apply` entries, `subscribe`, `deliver`, `expire` |
| `commands` | commands, entries, and what comes of them |
| `channel`, `directory` | one channel; all channels and their lives |
| `message`, `cache` | one message; all messages, bounded |
| `poll` | what a client asks |
| `subscription`, `waiting` | one held poll; all held polls |
| `answer` | what a poll gets |
| `cursor` | how far a client has seen |
| `time_tree` | things by the time they are due |
| `keys` | idempotency keys |
| `snapshot` | the shared state as a value |
| `limits`, `errors` | the bounds; what can go wrong |
| `wire` | JSON <-> values |
"""
