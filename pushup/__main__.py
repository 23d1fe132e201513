"""`python -m pushup` is `pushup`."""

from pushup.cli import main

main(prog_name="pushup")
