"""Tests of the Python client, without a network and real time. tests/server/test_client.py has others.

| file | contents |
|---|---|
| `simulated_driver` | a driver whose nodes follow scripts |
| `both_clients` | the client for asyncio with the methods of the blocking one |
| `user_program` | a user's program, for type checkers |
"""
