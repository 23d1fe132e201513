"""The Python client of PushUp's HTTP interface. It needs nothing but the standard library, and no part of the server.

| file | what |
|---|---|
| `client.py` | `Client`, with a method for each call |
| `credentials.py` | the publish key, or tokens that are renewed |
| `http_connection.py` | an HTTP connection on which every wait ends, and `ClientError` |
"""

from pushup.client.client import Client
from pushup.client.http_connection import ClientError

__all__ = ["Client", "ClientError"]
