"""The questions and answers of PushUp §3.3, as a small Flask application.

John asks a question about C++ and Java. The application stores it in its database and publishes it with one HTTP
request on the channels `author:John`, `tag:c++` and `tag:java`; everyone who has one of these pages open sees it at
once. Nothing here is event-driven or waits for events: PushUp holds the readers' requests.

To render a page, the application fetches a cursor first and then reads the database. A question published in between is
in both, and the page's script shows it once; the first poll gets whatever is published later. So nothing is missed.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote, unquote

from flask import (
    Blueprint,
    Flask,
    Response,
    abort,
    current_app,
    g,
    redirect,
    render_template,
    request,
    send_file,
    url_for,
)
from werkzeug.wrappers import Response as AnyResponse

from deploy.example.database import Database, Row
from pushup.client import Client, ClientError

ALL = "questions"
"""The channel of every question, for the front page."""

AUTHOR_LIMIT = 40
TITLE_LIMIT = 150
TEXT_LIMIT = 5000
TAGS_LIMIT = 5
"""Maximum lengths in characters, and number of tags. A question fits into one message (`message_limit_bytes`)."""

PUSHUP_SECONDS = 2.0
"""Longest wait for PushUp. A page is then served without its cursor."""

pages = Blueprint("pages", __name__)

_TAG = re.compile(r"[\w+#.-]{1,30}").fullmatch


class Refused(Exception):
    """The input is invalid; the text says why."""


def make_app(database: Path, pushup: Client) -> Flask:
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


@pages.get("/static/pushup.js")
def script() -> Response:
    """PushUp's module for pages, as it is in the package that is installed here."""
    return send_file(str(files("pushup.browser").joinpath("pushup.js")), mimetype="text/javascript")


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


# --- forms ---


@pages.post("/questions")
def ask() -> AnyResponse:
    """Store a question, and publish it to readers of its author, its tags, and the front page."""
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
    """Store an answer, and publish it to readers of its question."""
    if _database().question(number) is None:
        abort(404)
    try:
        given = _database().add_answer(number, author=_field("author", AUTHOR_LIMIT), text=_text_field())
    except Refused as refusal:
        return Response(render_template("refused.html", reason=refusal), status=400)
    told = _publish([f"question:{number}"], {"kind": "answer", **given})
    return _back_to(number, given["author"], told=told)


def _publish(channels: list[str], data: Row) -> bool:
    """Whether PushUp accepted it. If not, nothing is lost: readers see it when they reload the page."""
    pushup: Client = current_app.extensions["pushup"]
    try:
        pushup.publish(channels, data)
    except ClientError as error:
        current_app.logger.warning("cannot publish; readers see this when they reload: %s", error)
        return False
    return True


def _back_to(question: int, author: str, *, told: bool) -> AnyResponse:
    response = redirect(url_for(".one_question", number=question, told=None if told else "no"), code=303)
    response.set_cookie("author", quote(author), max_age=365 * 86400, httponly=True, samesite="Lax")
    return response


def _field(name: str, limit: int) -> str:
    """A single-line form field. Raises: Refused."""
    value = " ".join(request.form.get(name, "").split())
    if not value or len(value) > limit or not value.isprintable():
        raise Refused(f"The {name} must have 1 to {limit} printable characters.")
    return value


def _text_field() -> str:
    value = request.form.get("text", "").replace("\r\n", "\n").strip()
    if not value or len(value) > TEXT_LIMIT:
        raise Refused(f"The text must have 1 to {TEXT_LIMIT} characters.")
    return value


def _tags() -> list[str]:
    tags = list(dict.fromkeys(re.split(r"[\s,]+", request.form.get("tags", "").lower().strip())))
    if not 0 < len(tags) <= TAGS_LIMIT or not all(_TAG(tag) for tag in tags):
        raise Refused(f"Enter 1 to {TAGS_LIMIT} tags of letters, digits and + # . - _, such as: c++ java")
    return tags


# --- data for pages ---


def _cursor() -> str:
    """Where the page's script starts to poll; empty if PushUp does not respond, and then the script retries."""
    pushup: Client = current_app.extensions["pushup"]
    try:
        return pushup.cursor()
    except ClientError as error:
        current_app.logger.warning("cannot get a cursor; the page updates when PushUp responds again: %s", error)
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
    """Allow only this site's own scripts and styles, whatever users enter."""
    response.headers["Content-Security-Policy"] = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    if request.endpoint not in ("static", "pages.script"):
        response.headers["Cache-Control"] = "no-store"  # a page's cursor must be current
    return response


def rfc3339(seconds: float) -> str:
    """A time in the format of `<time datetime>`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def hue(name: str) -> int:
    """The number of an author's colour; live.js computes the same one."""
    return sum(map(ord, name)) % 8


def from_environment() -> Flask:
    """Configured by PUSHUP_URL, PUSHUP_KEY and DATABASE: `gunicorn 'deploy.example.app:from_environment()'`."""
    url, key = os.environ.get("PUSHUP_URL", "http://127.0.0.1:8080"), os.environ.get("PUSHUP_KEY")
    pushup = Client(url, key or None, timeout=PUSHUP_SECONDS)
    return make_app(Path(os.environ.get("DATABASE", "questions.db")), pushup)
