"""The samples of docs/guide/tokens.md: what a reader copies works."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec
import pytest
from selenium.webdriver.common.by import By

from pushup.settings.channel_policies import ChannelTable
from pushup.tokens.token_settings import TokenIssuer
from tests.server.chromium import chromium
from tests.server.document_programs import started
from tests.server.document_samples import flags, sample
from tests.server.redis_server import free_port
from tests.server.server_process import running, wait_until

PAGE = "docs/guide/tokens.md"
MAKE, SERVE = sample(PAGE, "(umask 077").split("\n", 1)
SIGN = sample(PAGE, "import time\nfrom")
POLL = sample(PAGE, "GET /v1/poll?channel=user:7")
ISSUERS = sample(PAGE, "[[token_issuers]]")
REVOKE = sample(PAGE, "curl http://127.0.0.1:8080/v1/revoke")
REVOKED = sample(PAGE, '{"sub": "7"')
RULES = sample(PAGE, "[[channels]]")
FASTAPI = sample(PAGE, '@app.get("/push-token")')
DJANGO = sample(PAGE, "from django.http")
FOLLOW = sample(PAGE, '<script type="module">')


@pytest.fixture
def token_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """The function of the page, beside the files that it makes."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["sh", "-c", MAKE], check=True)
    names: dict[str, Any] = {}
    exec(SIGN, names)
    return names["token_for"]  # type: ignore[no-any-return]


def test_a_token_and_its_revocation(tmp_path: Path, token_for: Callable[[str], str]) -> None:
    """The server, the token, the poll and the curl line of the page; and the rules by channel."""
    (tmp_path / "pushup.toml").write_text(RULES)
    line = SERVE.replace("\\\n", " ").replace("_file=", f"_file={tmp_path}/")
    with running(tmp_path / "log", (*flags(line), "--config", str(tmp_path / "pushup.toml"))) as server:
        with server.caller() as caller:
            method, target = POLL.splitlines()[0].split()
            head = {"Authorization": f"Bearer {token_for('7')}"}
            assert caller.call(method, f"{target}&timeout=0", headers=head).status == 200
            assert caller.call(method, "/v1/poll?channel=user:8&timeout=0", headers=head).status == 403
            assert caller.call(method, f"{target}&timeout=0").status == 401
            assert caller.call(method, "/v1/poll?channel=public:news&timeout=0").status == 200
            for channel, status in (("typing:7", 201), ("news", 403), ("order:7", 403)):
                body = {"channels": [channel], "data": 1}
                assert caller.call("POST", "/v1/messages", body, headers=head).status == status, channel
            command = REVOKE.replace("http://127.0.0.1:8080", server.url)
            shell = ["sh", "-c", f"{command.strip()} -s"]
            said = subprocess.run(shell, capture_output=True, check=True)
            assert json.loads(said.stdout).keys() == json.loads(REVOKED).keys()
            refused = caller.call(method, f"{target}&timeout=0", headers=head)
            assert (refused.status, refused.value["type"]) == (401, "urn:pushup:revoked")
        assert server.trouble() == []


def test_the_tables() -> None:
    """They are of the form that the settings have."""
    msgspec.convert(tomllib.loads(ISSUERS)["token_issuers"], tuple[TokenIssuer, ...])
    assert len(msgspec.convert(tomllib.loads(RULES)["channels"], tuple[ChannelTable, ...])) == 2


# The pages.

SHOW = """<!doctype html><title>page</title><ul id=list></ul><script>
const show = data => list.append(Object.assign(document.createElement("li"), {textContent: data}));
</script>
"""
FASTAPI_APPLICATION = f"""
from fastapi import Cookie, Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse

app = FastAPI()

def current_user(user: str | None = Cookie(None)):
    if user is None:
        raise HTTPException(401)
    return user

@app.get("/")
def page():
    return FileResponse("page.html")

{SIGN}
{FASTAPI}"""
DJANGO_APPLICATION = f"""
from types import SimpleNamespace
import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.urls import path

def users(get_response):
    def respond(request):
        name = request.COOKIES.get("user")
        request.user = SimpleNamespace(is_authenticated=name is not None, id=name)
        return get_response(request)
    return respond

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x", MIDDLEWARE=[__name__ + ".users"])

{SIGN}
{DJANGO}
def page(request):
    return HttpResponse(open("page.html"))

urlpatterns = [path("push-token", push_token), path("", page)]
app = get_wsgi_application()
"""


@pytest.mark.parametrize(
    ("application", "server"),
    [(FASTAPI_APPLICATION, ["uvicorn", "app:app", "--port"]), (DJANGO_APPLICATION, ["gunicorn", "app:app", "--bind"])],
    ids=["fastapi", "django"],
)
def test_a_private_channel(tmp_path: Path, token_for: object, application: str, server: list[str]) -> None:
    """A user sees what is published for them, on a page of another origin; no request needs a preflight. (The fixture
    `token_for` has made the files.)
    """
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    line = SERVE.replace("\\\n", " ").replace("_file=", f"_file={tmp_path}/")
    more = ("--set", f"cors_origins={origin}", "--set", "log_level=debug")
    with ExitStack() as stack:
        pushup = stack.enter_context(running(tmp_path / "log", (*flags(line), *more)))
        (tmp_path / "app.py").write_text(application)
        (tmp_path / "page.html").write_text(SHOW + FOLLOW.replace("http://127.0.0.1:8080", pushup.url))
        address = str(port) if server[0] == "uvicorn" else f"127.0.0.1:{port}"
        stack.enter_context(started([*server, address], port, tmp_path))
        driver = stack.enter_context(chromium())
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{origin}/push-token")  # nobody has logged in
        driver.get(f"{origin}/nothing")  # a page of this origin, to set the cookie
        driver.add_cookie({"name": "user", "value": "7"})
        driver.get(origin)
        pushup.wait_for_held(1)
        with pushup.caller() as caller:
            head = {"Authorization": f"Bearer {Path('publish_keys').read_text().strip()}"}
            for user in "78":
                body = {"channels": [f"user:{user}"], "data": f"for {user}"}
                caller.call("POST", "/v1/messages", body, headers=head)
        wait_until(lambda: bool(driver.find_elements(By.TAG_NAME, "li")), "the message")
        assert [item.text for item in driver.find_elements(By.TAG_NAME, "li")] == ["for 7"]
        log = "\n".join(pushup.log_lines())
        assert "POST /v1/events" in log
        assert "OPTIONS" not in log
