"""The questions and answers of PushUp §3.3, as a small Flask application.

John asks something about C++ and Java. The question goes into the database, and with one HTTP request to the channels
`author:John`, `tag:c++` and `tag:java`; whoever reads a page of one of them sees it at once. Nothing here is
event-driven, nothing waits: a request comes, a page goes. PushUp holds the readers.

A page is made in this order: first the cursor, then the database. What is published in between is in both, and the
page's script shows it once; what comes later, the first poll gets. So nothing is missed between page and poll.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote
from uuid import uuid4

from flask import Blueprint, Flask, Response, abort, current_app, g, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from deploy.example.database import Database, Row
from deploy.example.pushup_client import PushUpClient

ALL = "questions"
"""The channel of every question, for the front page."""

AUTHOR_LIMIT = 40
TITLE_LIMIT = 150
TEXT_LIMIT = 5000
TAGS_LIMIT = 5
"""Characters, and tags. A question fits well into one message (`message_limit_bytes`)."""

pages = Blueprint("pages", __name__)

_TAG = re.compile(r"[\w+#.-]{1,30}").fullmatch


class Refused(Exception):
    """What was entered cannot be taken; the text says why."""


def make_app(database: Path, pushup: PushUpClient) -> Flask:
    """The application."""
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = 64 * 1024
    app.config["DATABASE"] = database
    app.extensions["pushup"] = pushup
    database.parent.mkdir(parents=True, exist_ok=True)
    first = Database(database)
    first.create()
    first.close()

    app.register_blueprint(pages)
    app.template_filter("rfc3339")(rfc3339)
    app.template_filter("hue")(hue)
    app.after_request(_protect)
    app.teardown_appcontext(_close_database)
    return app


# --- pages ---


@pages.get("/")
def all_questions() -> str:
    """The newest questions of all."""
    return _list("All questions", [ALL], ask_tags="")


@pages.get("/tag/<tag>")
def by_tag(tag: str) -> str:
    """The newest questions with a tag."""
    if not _TAG(tag):
        abort(404)
    return _list(tag, [f"tag:{tag}"], tag=tag, ask_tags=tag)


@pages.get("/author/<path:author>")
def by_author(author: str) -> str:
    """The newest questions of an author."""
    if not 0 < len(author) <= AUTHOR_LIMIT:
        abort(404)
    return _list(author, [f"author:{author}"], author=author, ask_tags="")


def _list(
    heading: str, channels: list[str], *, ask_tags: str, tag: str | None = None, author: str | None = None
) -> str:
    cursor = _cursor()
    return render_template(
        "questions.html",
        heading=heading, channels=channels, cursor=cursor, tag=tag, author=author, ask_tags=ask_tags,
        questions=_database().questions(tag=tag, author=author), popular=_database().popular_tags(), **_about_you(),
    )  # fmt: skip


@pages.get("/question/<int:number>")
def one_question(number: int) -> str:
    """A question and its answers."""
    cursor = _cursor()
    question = _database().question(number)
    if question is None:
        abort(404)
    return render_template(
        "question.html",
        question=question, channels=[f"question:{number}"], cursor=cursor,
        answers=_database().answers(number), **_about_you(),
    )  # fmt: skip


# --- what people send ---


@pages.post("/questions")
def ask() -> AnyResponse:
    """Keep a question, and tell those who read its author, one of its tags, or everything."""
    try:
        question = _database().add_question(
            author=_field("author", AUTHOR_LIMIT), title=_field("title", TITLE_LIMIT),
            text=_text_field(), tags=_tags(),
        )  # fmt: skip
    except Refused as refusal:
        return Response(render_template("refused.html", reason=refusal), status=400)
    channels = [ALL, f"author:{question['author']}", *(f"tag:{tag}" for tag in question["tags"])]
    told = _publish(channels, {"kind": "question", **question})
    return _back_to(question["id"], question["author"], told=told)


@pages.post("/question/<int:number>/answers")
def answer(number: int) -> AnyResponse:
    """Keep an answer, and tell those who read its question."""
    if _database().question(number) is None:
        abort(404)
    try:
        given = _database().add_answer(number, author=_field("author", AUTHOR_LIMIT), text=_text_field())
    except Refused as refusal:
        return Response(render_template("refused.html", reason=refusal), status=400)
    told = _publish([f"question:{number}"], {"kind": "answer", **given})
    return _back_to(number, given["author"], told=told)


def _publish(channels: list[str], data: Row) -> bool:
    """Whether PushUp has it. If not, nothing is lost: it is in the database, and on the page when it is next loaded."""
    pushup: PushUpClient = current_app.extensions["pushup"]
    try:
        pushup.publish(channels, data, idempotency_key=str(uuid4()))
    except OSError as error:
        current_app.logger.warning("not published: %s", error)
        return False
    return True


def _back_to(question: int, author: str, *, told: bool) -> AnyResponse:
    response = redirect(url_for(".one_question", number=question, told=None if told else "no"), code=303)
    response.set_cookie("author", quote(author), max_age=365 * 86400, httponly=True, samesite="Lax")
    return response


def _field(name: str, limit: int) -> str:
    """One line that was entered. Raises: Refused."""
    value = " ".join(request.form.get(name, "").split())
    if not value or len(value) > limit or not value.isprintable():
        raise Refused(f"The {name} needs 1 to {limit} printable characters.")
    return value


def _text_field() -> str:
    value = request.form.get("text", "").replace("\r\n", "\n").strip()
    if not value or len(value) > TEXT_LIMIT:
        raise Refused(f"The text needs 1 to {TEXT_LIMIT} characters.")
    return value


def _tags() -> list[str]:
    tags = list(dict.fromkeys(re.split(r"[\s,]+", request.form.get("tags", "").lower().strip())))
    if not 0 < len(tags) <= TAGS_LIMIT or not all(_TAG(tag) for tag in tags):
        raise Refused(f"A question needs 1 to {TAGS_LIMIT} tags of letters, digits and + # . - _, such as: c++ java")
    return tags


# --- what pages need ---


def _cursor() -> str:
    """Where the page's script begins to poll; empty when PushUp does not answer, and the script finds out itself."""
    pushup: PushUpClient = current_app.extensions["pushup"]
    try:
        return pushup.cursor()
    except OSError as error:
        current_app.logger.warning("no cursor: %s", error)
        return ""


def _about_you() -> dict[str, str]:
    return {"you": unquote(request.cookies.get("author", ""))[:AUTHOR_LIMIT]}


def _database() -> Database:
    if "database" not in g:
        g.database = Database(current_app.config["DATABASE"])
    database: Database = g.database
    return database


def _close_database(_: BaseException | None) -> None:
    if "database" in g:
        g.database.close()


def _protect(response: Response) -> Response:
    """Only this site's own scripts and styles run in its pages, whatever people enter."""
    response.headers["Content-Security-Policy"] = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    if request.endpoint != "static":
        response.headers["Cache-Control"] = "no-store"  # a page's cursor is of the moment
    return response


def rfc3339(seconds: float) -> str:
    """A time as `<time datetime>` has it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def hue(name: str) -> int:
    """The number of an author's colour; live.js finds the same."""
    return sum(map(ord, name)) % 8


def from_environment() -> Flask:
    """The application by PUSHUP_URL, PUSHUP_KEY and DATABASE: `gunicorn 'deploy.example.app:from_environment()'`."""
    pushup = PushUpClient(os.environ.get("PUSHUP_URL", "http://127.0.0.1:8080"), os.environ.get("PUSHUP_KEY", ""))
    return make_app(Path(os.environ.get("DATABASE", "questions.db")), pushup)
