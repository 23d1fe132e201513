"""The process and its machine.

| file | what it does |
|---|---|
| `host` | what a server stands on: its process, clocks, disk and network; a simulated one has another |
| `reactor_watch` | how late its timers are, and whether it stood still |
| `preflight` | checks that this machine provides what the settings need |
| `process_limits` | processors, file descriptors, the garbage collector, and malloc |
| `logs` | the log |
| `systemd_notify` | notifies systemd: ready, alive, stopping |
| `build_form` | the commit of this build, and whether it is compiled |
"""
