"""What the tests with containers need: Docker with its own daemon, and images that need no registry.

install.sh   installs Docker's programs and compose, and makes the root of the stand-in images; run once, then cached
docker.py    the daemon, in its own namespaces, and commands for it
isolate.sh   the first process in these namespaces
stand_ins.py builds images named like the official ones, from images/
cluster.py   compose.yaml unchanged and running: its services, their clients, and how to kill them
"""
