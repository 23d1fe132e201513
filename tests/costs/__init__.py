"""What PushUp spends on a message and on a poll: in calls, instructions and bytes, without a clock.

A change that spends more, or less, fails `test_costs.py`. `python -m tests.costs` renews the numbers and the table.

| file | what |
|---|---|
| `counting` | counts calls and instructions, and measures memory |
| `server`, `requests` | a server in this process, and what its clients send |
| `operations` | what one publication, delivery, held poll and so on costs |
| `paths` | the five paths of docs/internals/architecture.md, and their table there |
| `numbers` | `costs.toml`: reads, compares and writes it |
"""
