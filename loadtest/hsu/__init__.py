"""Hsu & Wu, "An event-driven framework for inter-user communication applications".

| file | contents |
|---|---|
| `blocked_client` | §5.2, Figure 15: a client's link is blocked; how long do the others wait? |
| `blocked_client_server` | its server: PushUp, with the output buffer or without |
| `recorded_game` | §5.1, §5.2: a game with 1,000 players, recorded and replayed |
| `growing_output` | §3.2: a client that does not read, up to the limit of its output buffer and beyond |
| `slow_backend` | §4.3, the limited service problem: a slow backend, and the clients that do not need it |
| `slow_authorizer` | that backend |
| `service_requests` | §4.1 to §4.3 with DNS, a database and LDAP in its place |
| `real_servers` | these: dnsmasq, PostgreSQL and slapd |
| `player_records` | their clients, which block |
| `distance_server` | the network between them |
| `cyc/` | §5.1, Figure 12: a small game system on the same framework |
| `blocking_server` | §4.1: a server whose handlers call it themselves |
| `helper_process` | §4.3, Figures 8 to 10: the paper's helper process, which calls it |
"""
