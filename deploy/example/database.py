"""Questions and answers in SQLite. Values in and out are the dictionaries that pages show and PushUp carries."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

SHOWN = 50
"""Questions on one page."""

_QUESTIONS = """
    SELECT id, author, title, text, time,
           (SELECT group_concat(tag, ' ') FROM tags WHERE question = questions.id) AS tags,
           (SELECT count(*) FROM answers WHERE question = questions.id) AS answers
    FROM questions {where} ORDER BY id DESC LIMIT ?
"""

Row = dict[str, Any]


class Database:
    """One connection; opened for each request, which is cheap."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=10)
        self._connection.row_factory = sqlite3.Row

    def create(self) -> None:
        """Make the tables, unless they are there."""
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.executescript((Path(__file__).parent / "schema.sql").read_text())

    def close(self) -> None:
        self._connection.close()

    def questions(self, *, tag: str | None = None, author: str | None = None) -> list[Row]:
        """The newest questions, newest first."""
        if tag is not None:
            return self._questions("WHERE id IN (SELECT question FROM tags WHERE tag = ?)", tag)
        if author is not None:
            return self._questions("WHERE author = ?", author)
        return self._questions("")

    def question(self, number: int) -> Row | None:
        """One question."""
        return next(iter(self._questions("WHERE id = ?", number)), None)

    def answers(self, question: int) -> list[Row]:
        """Its answers, oldest first."""
        found = self._connection.execute("SELECT * FROM answers WHERE question = ? ORDER BY id", [question])
        return [dict(row) for row in found]

    def popular_tags(self) -> list[str]:
        """The tags with the most questions."""
        found = self._connection.execute("SELECT tag FROM tags GROUP BY tag ORDER BY count(*) DESC, tag LIMIT 12")
        return [row["tag"] for row in found]

    def add_question(self, *, author: str, title: str, text: str, tags: list[str]) -> Row:
        """Keep a question; it is on the disk when this returns."""
        with self._connection as connection:
            number = connection.execute(
                "INSERT INTO questions (author, title, text, time) VALUES (?, ?, ?, ?)",
                [author, title, text, time.time()],
            ).lastrowid
            connection.executemany("INSERT INTO tags (tag, question) VALUES (?, ?)", [(tag, number) for tag in tags])
        question = self.question(number or 0)
        assert question is not None
        return question

    def add_answer(self, question: int, *, author: str, text: str) -> Row:
        """Keep an answer; it is on the disk when this returns."""
        answer: Row = {"question": question, "author": author, "text": text, "time": time.time()}
        with self._connection as connection:
            number = connection.execute(
                "INSERT INTO answers (question, author, text, time) VALUES (:question, :author, :text, :time)", answer
            ).lastrowid
        return {"id": number, **answer}

    def _questions(self, where: str, *parameters: object) -> list[Row]:
        found = self._connection.execute(_QUESTIONS.format(where=where), [*parameters, SHOWN])
        return [{**row, "tags": (row["tags"] or "").split()} for row in found]
