"""Everything that could block, kept out of the reactor's way (Hsu §4).

What a backend can take is limited, and what waits for it must be, too. All of it goes through a `LimitedService`: at
most so many calls at a time, a bounded queue before them, a deadline for each.

| file | what |
|---|---|
| `limited_service` | the queue, the deadlines, the counting (Hsu §4.3, the limited service problem) |
| `helper_pool` | calls that block, in threads (Hsu §4.3, helper processes) |
| `service_requestor` | HTTP requests to other servers, without blocking (Hsu §4.2) |
| `tickets` | a verdict, sealed, which the client carries |
| `authorization` | who may poll what: asks the web backend, or the operator's own code |
"""
