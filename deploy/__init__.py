"""Runs PushUp together with everything it needs; README.md describes the configuration files.

| file | what it does |
|---|---|
| `local` | `python -m deploy.local`: runs a whole cluster on this machine |
| `cluster` | starts and stops that cluster: Redis, nodes, HAProxy, the example application |
| `part`, `restarts` | one process of the cluster; restarts processes that die |
| `front` | HAProxy's configuration, for any number of nodes |
| `environment` | sets up the virtual environment that the Makefile uses |
| `compiled` | compiles PushUp in a copy of this project, for its tests |
| `monitoring/` | alerts of Prometheus, and a dashboard for Grafana |
| `site/` | the documentation as a site |
| `release/` | what a release publishes, and whether it can be made |
| `example/` | an application whose pages are updated through PushUp |
"""
