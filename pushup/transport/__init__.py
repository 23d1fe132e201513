"""Bytes between the processes of one machine, and to other servers.

| file | what it does |
|---|---|
| `framed_link` | frames between the processes of one machine |
| `adopted_transport` | a connection to Redis that is read together with the clients' |
| `client_tls` | TLS connections to other servers |
"""
