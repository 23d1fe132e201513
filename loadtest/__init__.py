"""The papers' experiments, run on our server, and our own: `python -m loadtest EXPERIMENT [--quick]`.

A folder for each paper:

| folder | paper | experiments |
|---|---|---|
| `liu/` | PushUp, Liu & Cui | `traffic` (also `trip-time`): §4.2; `threads-or-events`: §4.3; `nodes`: §4.4 |
| `hsu/` | Hsu & Wu | `blocked-client`: §5.2, Figures 14, 15; `growing-output`: §3.2; `slow-backend`: §4.3 |
| `libman/` | Libman & Gilbourd | `echo`: reactor and proactor, emulated and true |
| `mishra/` | Mishra & Yang | `group`: a group communication service, event-based and thread-based |
| `roussev/` | Roussev & Wu | `designs`: seven server designs and the event-driven one, and their theorems |

And beside them:

| file | contents |
|---|---|
| `beyond/` | experiments that are in no paper: what operators and other servers' users ask |
| `history/` | what clients were told, and whether that keeps the promises |
| `kit/` | the parts of PushUp that experiments may be built from |
| `load/` | generates load, starts servers and measures both |
| `reports/` | tables and figures, and one page with all of them |
| `locustfile` | for locust; its users are in `liu/users` |
| `everything` | all experiments, one after the other |

All traffic stays on loopback, every loop is bounded, and every server is stopped at the end, even on Ctrl-C.
"""
