"""The pure core: no Twisted, no clock, no I/O. Time comes in as an argument, answers are returned as values.

Below is the replicated state, a pure function of the entries; above it the polls that one node holds.

| file | what it defines |
|---|---|
| `state` | the replicated state: `apply` an entry, expiry |
| `state_rows` | what it consists of: its tables, as values, and what has changed in them |
| `channels`, `channel` | all channels by name and id; one channel, and one message; what an entry did to channels |
| `message_cache` | all cached messages, bounded |
| `drops`, `tracing` | the messages dropped lately; what became of one message |
| `erasure` | removing messages that somebody wants gone |
| `bounded_table` | tables that keep rows for some time, such as that of idempotency keys |
| `producers` | one of them: the last publication of each producer that counts its messages |
| `revocations` | one of them: which tokens and tickets nobody may use any more |
| `webhooks` | one of them: the messages that wait for readers, and about which the application has to be called |
| `members` | one of them: who follows the channels with presence |
| `attendance`, `presence` | the commands that change that; what they do, and the messages that tell it |
| `rows`, `snapshot` | the rows of the state as values; the whole state as one, and how rows are stored and sent |
| `change_log` | which rows changed since the last checkpoint |
| `state_transfer` | moving a whole state in steps: to another process, out of a snapshot, into a new epoch |
| `machine_rules` | what entries are carried out by: the limits, how long messages are kept, the version |
| `shelves` | how messages are filed: by sequence, and by class of retention and publisher |
| `commands` | commands, entries and outcomes |
| `held_polls` | the polls of one node: `subscribe`, `abandon`, `deliver`, `expire` |
| `poll_index` | where each of them is, by name and by deadline; what can happen to it, as a table |
| `poll_migration` | moving them to another state, a few at a time |
| `subscription` | one held poll; who waits on one name |
| `held_on_grants` | the held polls and streams on tokens, tickets and keys, by user |
| `poll`, `cursor` | what a client asks for, and how far it has seen; epochs, which cursors name |
| `answer` | what a poll gets: messages, gaps, closings, the next cursor |
| `reading` | how a poll's answer is made of the state; decides who gets a gap |
| `time_tree` | things by the time they are due |
| `grant` | what a request may do, and on whose behalf |
| `memo` | what was made of the text that clients sent, to be used again |
| `limits`, `errors` | the bounds; what can go wrong, and why commands and polls are refused that are in order |
"""
