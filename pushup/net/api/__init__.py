"""The HTTP interface (docs/guide/): requests become calls on the node, and their outcomes become responses.

| file | what it does |
|---|---|
| `application` | the table of all calls; one request, from the check of its access to the response of last resort |
| `router` | path and method -> call; OPTIONS, 404, 405 |
| `streaming`, `event_encoding` | event streams, which poll for their clients; their bytes |
| `polling`, `publishing`, `channel_routes`, `erasing`, `revoking` | the handlers, by concern |
| `presence` | the handlers about who follows a channel |
| `tracing`, `health`, `backing_up` | those for operators |
| `node_interface` | what all of these need of a node, and of all processes of a server |
| `browser_client` | `pushup.js`, `answers.js`, `ai-sdk.js` for web pages |
| `dashboard` | the page for operators |
| `static_files` | what serves both: a file, its tag, its encodings |
| `poll_parameters` | the parameters of a poll; what was made of query strings is remembered |
| `bodies` | JSON -> values, and what is wrong with a body in plain words; values -> JSON |
| `schemas` | the fields of this JSON, and the limits of what one request can ask for |
| `suggestions` | "did you mean ...?" |
| `access`, `publish_keys` | request -> grant; a line of the setting `publish_keys` -> a key, and what it allows |
| `publishers` | who publishes how much: counts, and a line of the log for each publication |
| `turns` | publications wait for their turn when more arrive than can be carried out |
| `quotas` | how much a publish key, a user or a client address may ask for |
| `channel_rules` | who may poll and publish, by how the names of channels begin |
| `cors` | which web pages may use this server (CORS) |
| `poll_access` | what a client may poll: by its token, by the application's decision, or as everybody |
| `url_tickets` | tickets in URLs: issued for a token, and accepted for event streams |
| `error_responses` | errors -> responses; who was refused is counted and logged |
| `request_log` | a log line for each request, at level debug |
| `traceparent` | the trace that a request belongs to |
"""
