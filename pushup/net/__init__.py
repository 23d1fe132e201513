"""The edge: bytes of clients' connections -> requests, and responses -> bytes. What answers requests is in `net.api`.

| file | what it holds |
|---|---|
| `edge` | all listeners and connections of a node, and which connections are given up |
| `reserve` | the connections beyond `connections_limit`, on which only operators are answered |
| `edge_limits` | the limits of connections and requests |
| `listener` | addresses, and accepting connections |
| `wait` | the demultiplexer: waiting for sockets and reading them |
| `connection` | one client: bytes in, requests one at a time, responses out |
| `connection_states` | what each event changes in a connection: its phases and transitions, as tables |
| `pipeline` | the requests of a connection that are incomplete or wait behind another |
| `edge_context` | what all connections have in common: request parsers, and how much may wait, among others |
| `requests_and_responses` | a request as the edge and the application see it; responses -> bytes |
| `http1` | bytes -> requests |
| `request_line` | what llhttp leaves open in the first line |
| `known_heads` | the header fields of requests that came before, which need not be read again |
| `output_buffer` | bytes that the kernel has not accepted yet, and how many all clients may leave |
| `http_errors` | the errors of HTTP; the one table that gives each error its status, code and title |
| `proxies` | who a request really comes from, when proxies are in between |
| `application_interface` | the interface between the edge and the application: one open request |
| `api` | the application: requests -> calls on the node |
| `log_throttle` | rate limiting of log lines |
"""
