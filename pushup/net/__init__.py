"""Everything HTTP, from the socket to the call.

| file | what passes through it |
|---|---|
| `listener` | new connections |
| `demultiplexer` | readiness, and the bytes read; two wait strategies |
| `connection` | one client: bytes in, requests one at a time, responses out |
| `http1` | bytes -> requests |
| `output_buffer` | bytes that the kernel would not take yet |
| `responses` | answers, responses and errors -> bytes |
| `edge` | all of the above together, and their bounds |
| `exchange` | one open request, as the application sees it |
| `api` | requests -> calls on the node |
| `access` | who may do what: keys, origins, names of this server |
| `origins` | how browsers write the origin of a page |
| `authorized_polls` | polls of clients that the application is asked about |
| `poll_parameters` | the parameters of a poll |
| `refusals`, `request_log`, `rarely` | what is counted and logged of requests |
"""
