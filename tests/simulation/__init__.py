"""A cluster of real servers on one simulated clock, network, Redis and disk; see docs/internals/simulation.md.

| file | what it defines |
|---|---|
| `plan` | what a seed does: the cluster, the clients, the faults, each with its time |
| `lease_plan` | plans around leases: nodes that are slow, stopped, cut off or joining |
| `producers`, `producer_plan` | producers with an outbox, judged by what they are told; plans with them |
| `presence`, `presence_plan` | users who follow channels in tabs, and who reads who is there; plans with both |
| `unread`, `application`, `unread_plan` | messages that wait for readers; the application; plans with both |
| `steps` | what a plan consists of |
| `simulation` | one run: builds the cluster, carries out the plan, heals everything, checks the end |
| `record` | what publishers and subscribers do and are told: kept, and judged (`loadtest/history`) |
| `inside` | the few checks that look into the servers |
| `probes` | no node answers from the past after `stable` |
| `reach` | the dangerous states that a long run must have been in |
| `seeds` | many runs, in several processes |
| `shrink` | the smallest plan that breaks the same promise |
| `world` | simulated time, processes and their clocks |
| `network`, `sockets` | connections, and what the servers use instead of sockets |
| `redis_server`, `disk` | Redis and the disks, and what is left after a fault |
| `other_cluster` | another cluster, whose Redis or state directory turns up in this one |
| `outgoing` | the connections of the servers' HTTP client |
| `host` | what a server stands on here: it is built of the same parts as a real one (`pushup.host`) |
| `server`, `observed_node` | a machine with a PushUp server; a node that counts what its turns cost |
| `balancer`, `clients`, `http` | the load balancer, publishers and subscribers, and the HTTP that they speak |
"""
