"""`python -m tests.outbox.application URL NAME`: an application that writes to its outbox until it is killed.

Each of its writers makes one transaction after another, and rolls some back. The table `truth` says in the same
transaction what was committed. Each message names one that was committed before its transaction began.
"""

from __future__ import annotations

import random
import sys
import threading
import time

from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, insert, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from pushup.outbox.sqlalchemy import add

WRITERS = 3

facts = MetaData()
truth = Table("truth", facts, Column("id", Integer, primary_key=True), Column("name", String(64)))


def write(engine: Engine, writer: str) -> None:
    number = 0
    while True:
        try:
            with Session(engine) as session:
                after = session.scalar(select(truth.c.name).order_by(truth.c.id.desc()).limit(1))
                is_kept = random.random() > 0.2
                for _ in range(random.randint(1, 3)):
                    name = f"{writer}-{number}" if is_kept else f"{writer}-rolled-back-{number}"
                    add(session, ["all", writer], {"name": name, "after": after})
                    session.execute(insert(truth).values(name=name))
                    number += 1
                time.sleep(random.choice([0.0, 0.005, 0.05]))
                if is_kept:
                    session.commit()
        except SQLAlchemyError:
            time.sleep(0.1)
        time.sleep(0.02)


if __name__ == "__main__":
    url, name = sys.argv[1:]
    database = create_engine(url)
    for index in range(WRITERS):
        threading.Thread(target=write, args=(database, f"{name}.{index}"), daemon=True).start()
    threading.Event().wait()
