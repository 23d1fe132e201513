"""The node: where the replicated state, the held polls, the clock and the broadcast meet.

| file | what it does |
|---|---|
| `node` | what the HTTP interface calls and what the broadcast feeds; answers woken and due polls in slices |
| `node_metrics` | what `/metrics` says about it |
| `publishers` | who takes the memory for messages: metrics, and a line when messages are evicted |
| `readers`, `webhook_caller` | who has read what; calls the application about what was not read |
| `presence`, `follower`, `leaving` | who follows by this node, on channels with presence; who leaves |
| `order_end` | whether polls held ahead of the node have seen more than the order has |
| `expiry` | lets what is due in the shared state expire |
| `tracing` | what it remembers of the way of messages: whom it answered, how far all nodes were |
| `drain` | answers the held polls of a stopping node over some time |
"""
