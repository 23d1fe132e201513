"""Everything that could block, kept away from the reactor (Hsu §4).

A backend handles a limited number of calls at a time, so its queue must be limited as well. Every call goes through a
`LimitedService`, which bounds the calls in progress and the queue, and gives each call a deadline.

| file | what it does |
|---|---|
| `limited_service` | the queue, the deadlines and the counters (Hsu §4.3, the limited service problem) |
| `helper_pool` | runs blocking calls in threads (Hsu §4.3, helper processes) |
| `service_requestor` | sends HTTP requests to other servers without blocking (Hsu §4.2) |
| `authorization` | decides who may poll what: by a ticket, or else by asking the application |
| `web_backend` | asks the application over HTTP |
| `own_code` | calls a Python function of the operator's |
| `verdict` | reads the answer of either |
| `tickets` | seals a verdict, so that the client can carry it |
"""
