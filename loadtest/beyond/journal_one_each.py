"""The server of `journal` that commits each publication separately."""

from pushup.broadcast import journal
from pushup.cli import main

if __name__ == "__main__":
    journal.GROUP_LIMIT = 1
    main()
