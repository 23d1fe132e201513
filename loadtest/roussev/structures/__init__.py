"""Structures that pass a client's socket from the accepting thread to a serving thread (Roussev & Wu §3.3-§3.6, §4).

| file | contents |
|---|---|
| `shared_buffer` | a fixed array with one lock (§3.3) |
| `two_lock_queue` | a linked list with a lock at each end (§3.4; Michael & Scott) |
| `hash_table` | open addressing with double hashing and a lock per slot (§3.5; Theorems 1 and 2) |
| `pipe` | a place for one item, between two threads (§3.6) |
| `free_workers` | a flag per worker that says whether it is free (§3.6; Theorem 3) |

They exist only to compare these designs. Your own programs should use `queue.SimpleQueue`.
"""
