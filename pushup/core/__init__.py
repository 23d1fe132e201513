"""The pure core: no Twisted, no clock, no I/O. Time comes in as an argument, answers are returned as values.

Below is the replicated state, a pure function of the entries; above it the polls that one node holds.

| file | what it defines |
|---|---|
| `state` | the replicated state: `apply` an entry, expiry, snapshots, changes |
| `channels`, `channel` | all channels by name and id; one channel and its messages |
| `touched` | what an entry has done to channels, for those who hold polls on them |
| `due_channels` | channels in the order in which they are due |
| `message_cache`, `message` | all cached messages, bounded; one message |
| `bounded_table`, `idempotency_keys` | tables that keep rows for some time; one is that of idempotency keys |
| `rows`, `tables` | the rows of the state as values; all tables, and how rows are stored and sent |
| `change_log` | which rows changed since the last checkpoint |
| `snapshot`, `restoration` | the state as a value; a state made of one |
| `state_transfer` | handing a state to another process in pieces, while it goes on changing |
| `incremental` | going through a whole state a little at a time |
| `retention` | how long messages are kept, by channel and publisher |
| `machine_rules` | the limits and the version that entries are carried out by |
| `commands` | commands, entries and outcomes |
| `held_polls` | the polls of one node: `subscribe`, `abandon`, `deliver`, `expire` |
| `poll_index` | where each of them is, by name and by deadline; what can happen to it, as a table |
| `channel_waiters` | who waits on one name |
| `poll_migration` | moving them to another state, a few at a time |
| `subscription` | one held poll |
| `held_by_subject` | the held polls and streams of each user |
| `epoch_history` | the names that the order had before |
| `poll`, `cursor` | what a client asks for, and how far it has seen |
| `answer` | what a poll gets: messages, gaps, closings, the next cursor |
| `reading` | how a poll's answer is made of the state; decides who gets a gap |
| `time_tree` | things by the time they are due |
| `sequence_map` | things by sequence, in a table that grows without a pause |
| `grant` | what a request may do, and on whose behalf |
| `limits`, `errors` | the bounds; what can go wrong |
| `refusals` | why commands and polls are refused that are in order |
"""
