"""`python -m pushup.outbox DATABASE_URL PUSHUP_URL...`: run the relay, with the publish key in PUSHUP_KEY."""

import os
import sys

from pushup.client import Client, ClientError
from pushup.outbox.database import connector, run

if __name__ == "__main__":
    try:
        database_url, pushup_url, *more = sys.argv[1:]
        connect, client = connector(database_url), Client([pushup_url, *more], os.environ.get("PUSHUP_KEY"))
    except (ValueError, ClientError) as error:
        sys.exit(f"usage: python -m pushup.outbox DATABASE_URL PUSHUP_URL...\n{error}")
    run(connect, client)
