"""What PushUp is compared with.

| file | what |
|---|---|
| `thread_per_request` | multithreaded long polling (PushUp §4): a thread waits for each held request |
"""
