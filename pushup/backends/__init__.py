"""Everything that could block, kept off the reactor thread (Hsu §4).

A backend has limited capacity. Every call to one goes through a `LimitedService`, which bounds how many run at once
and how many wait, and gives each a deadline.

| file | what it does |
|---|---|
| `limited_service` | the queue, the deadlines and the counters (Hsu §4.3, the limited service problem) |
| `helper_pool` | blocking calls, in threads (Hsu §4.3, helper processes) |
| `service_requestor` | non-blocking HTTP requests to other servers (Hsu §4.2) |
| `authorization` | who may poll what: its settings, and decisions that become tickets |
| `function_authorizer` | asks the operator's own function |
| `url_authorizer` | asks the web application at a URL |
| `decision` | the decisions that an application can make, and the error when it makes none |
| `webhook` | tells the web application who has not read a message |
| `tickets` | a decision, sealed, which the client carries |
"""
