"""What the tests with containers need: Docker with a daemon of their own, and images where no registry is reached.

install.sh   installs Docker's programs and compose, and makes the root of the stand-in images; run once, then cached
docker.py    the daemon, in namespaces of its own, and the commands that are given to it
isolate.sh   the first process in these namespaces
stand_ins.py images under the names of the official ones, from images/
cluster.py   compose.yaml as it stands, running: whom to call, whom to kill
"""
