"""The Python client of PushUp's HTTP interface, blocking and for asyncio. It needs h11, and no part of the server.

What it does is written once, as coroutines. A driver, blocking or for asyncio, gives them a clock and connections
(docs/internals/decisions/0033-one-client.md).

| file | what |
|---|---|
| `client.py` | `Client`, the blocking one, with a method for each call |
| `calls.py` | `AsyncClient`: each call, and what is tried again |
| `following.py` | following channels, by a stream or by polls |
| `answers.py`, `answer_writer.py` | answers that come into being over time: reading one; writing one |
| `presence.py` | who follows a channel |
| `attempts.py` | which node is tried next, and when |
| `exchange.py` | one request to one node: connections that are kept, credentials, tickets |
| `credentials.py` | the publish key, or tokens that are renewed |
| `http1.py` | a request and its response on a connection, by h11 |
| `driver.py` | what a driver gives, and the blocking one |
| `asyncio_driver.py` | the one for asyncio |
| `values.py` | what calls return, and what they raise |
"""

from pushup.client.answer_writer import AnswerWriter, AsyncAnswerWriter
from pushup.client.answers import AnswerCutOff, AnswerError, AnswerFailed, AnswerState, AnswerStopped
from pushup.client.calls import Ack, AsyncClient
from pushup.client.client import Client
from pushup.client.presence import Member, Members
from pushup.client.values import (
    Answer,
    Channel,
    ClientError,
    Closed,
    Duplicate,
    Gap,
    Item,
    Message,
    NewMessage,
    Producer,
    Published,
)

__all__ = [
    "Ack",
    "Answer",
    "AnswerCutOff",
    "AnswerError",
    "AnswerFailed",
    "AnswerState",
    "AnswerStopped",
    "AnswerWriter",
    "AsyncAnswerWriter",
    "AsyncClient",
    "Channel",
    "Client",
    "ClientError",
    "Closed",
    "Duplicate",
    "Gap",
    "Item",
    "Member",
    "Members",
    "Message",
    "NewMessage",
    "Producer",
    "Published",
]
