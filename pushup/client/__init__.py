"""The Python client of PushUp's HTTP interface. It needs nothing but the standard library, and no part of the server.

| file | what |
|---|---|
| `client.py` | `Client`, with a method for each call, and `ClientError` |
| `http_connection.py` | an HTTP connection on which every wait ends |
"""

from pushup.client.client import Client, ClientError

__all__ = ["Client", "ClientError"]
