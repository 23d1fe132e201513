"""What passes a client's socket from the thread that accepts it to one that serves it (Roussev & Wu §3.3-§3.6, §4).

| file | what |
|---|---|
| `shared_buffer` | a fixed array, one lock (§3.3) |
| `two_lock_queue` | a linked list, a lock at each end (§3.4; Michael & Scott) |
| `hash_table` | open addressing with double hashing, a lock at each slot (§3.5; Theorems 1 and 2) |
| `pipe` | a place for one item, between two threads (§3.6) |
| `free_workers` | which workers are free: a flag for each (§3.6; Theorem 3) |

They are written for these designs to be compared. A program of your own is better off with `queue.SimpleQueue`.
"""
