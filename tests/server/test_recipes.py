"""docs/start/recipes: each recipe's code and commands, as they stand there, and what somebody sees in a real browser.

Applications with a blocking client reach PushUp through a bad proxy, and PushUp loses what it has in the middle.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import http_ece  # type: ignore[import-untyped]  # it has no types
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.server.bad_proxy import bad_proxy
from tests.server.caller import Caller, data_of
from tests.server.chromium import chromium
from tests.server.document_programs import started
from tests.server.document_samples import samples
from tests.server.redis_server import free_port
from tests.server.server_process import wait_until

CALLS = 20
"""Of each in the background: two of them write fewer messages than the 50 that a page of the chat begins with, however
long a reload takes."""

BACK_SECONDS = 60.0
"""A page that could not reach PushUp tries again after a random pause of up to 30 s; a long one is no fault."""


PUSH_HOST = "localhost"
"""The push service."""

INSTALLED = (
    ("pip install . flask\n", "flask run\n"),
    ("pip install . flask pywebpush\n", "flask run\n"),
    ("pip install . flask pyjwt\n", "flask run\n"),
    ("pip install . fastapi uvicorn jinja2 python-multipart\n", "uvicorn app:app --port 5000\n"),
)
"""What recipes install, and how they are run."""


class Recipe:
    """A recipe in a folder of its own: `url` is that of its pages, `address` that of its PushUp.

    `step_seconds`: how long its application pauses in each step, and how long it does so here until `hurry`. Otherwise
    it would be done before a browser on a busy machine has looked at what is in the middle.
    """

    def __init__(
        self, name: str, folder: Path, step_seconds: tuple[float, float] | None = None, instead: str = ""
    ) -> None:
        page = f"docs/start/recipes/{name}.md"
        code, install, serve, run, *others = (each.text for each in samples() if each.document == page)
        self._run = run.replace(" --port 5000", "").split()
        assert (install, run) in INSTALLED
        if instead:  # the first of the other samples replaces a function of the application
            begin = code.index(f"async def {instead}")
            code = code[:begin] + others[0] + code[code.index("\n\n\n", begin) :]
        *before, command = serve.replace("\\\n", "").splitlines()
        port, self.page_port = free_port(), free_port()
        self.address, self.url = f"127.0.0.1:{port}", f"http://127.0.0.1:{self.page_port}"
        self.folder = folder
        if step_seconds:
            step = f"sleep({step_seconds[0]})"
            assert code.count(step) == 1
            slowly = 'sleep({} if __import__("os").path.exists("hurry") else {})'.format(*step_seconds)
            code = code.replace(step, slowly)
        (folder / "app.py").write_text(self._here(code))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # with the `pushup` that is tested
        for line in before:
            subprocess.run(["sh", "-c", line], cwd=folder, check=True, env={**os.environ, "PATH": path})
        self._command, self._port = [*shlex.split(self._here(command)), "--listen", self.address], port
        self._pushup = ExitStack()

    def _here(self, text: str) -> str:
        return text.replace("127.0.0.1:8080", self.address).replace("http://127.0.0.1:5000", self.url)

    @contextmanager
    def running(self) -> Iterator[Recipe]:
        with bad_proxy(self.address) as proxy, self._pushup:
            application = self.folder / "app.py"
            application.write_text(application.read_text().replace(" = Client(PUSHUP", f' = Client("{proxy}"'))
            self.start_pushup()
            port = str(self.page_port)
            environment = {"FLASK_RUN_PORT": port, "UVICORN_PORT": port}
            with started(self._run, self.page_port, self.folder, **environment):
                yield self

    def start_pushup(self) -> None:
        self._pushup.enter_context(started(self._command, self._port, self.folder))

    def kill_pushup(self) -> None:
        """It keeps nothing."""
        self._pushup.close()

    def restart_pushup(self) -> None:
        self.kill_pushup()
        self.start_pushup()

    def hurry(self) -> None:
        """From now on the application is as fast as it stands there."""
        (self.folder / "hurry").touch()

    def log(self) -> str:
        """What the application has logged."""
        return (self.folder / f"{self.page_port}.log").read_text()

    def published(self, channel: str) -> list[Any]:
        """What PushUp has on a channel, which anybody may poll."""
        with Caller(self.address) as caller:
            return data_of(caller.poll(channel, cursor="earliest", timeout=0))

    def post(self, path: str, cookie: str = "", **form: str) -> int:
        """Send a form as a browser would; returns the status."""
        with closing(http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=30)) as connection:
            headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": cookie}
            connection.request("POST", path, urlencode(form), headers)
            return connection.getresponse().status


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


def text_of(browser: webdriver.Chrome, selector: str) -> list[str]:
    """The texts of the elements that the page has."""
    texts: list[str] = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(element => element.textContent)", selector
    )
    return texts


def joined(browser: webdriver.Chrome, selector: str) -> str:
    """The same, together; "" as long as there are none."""
    return "".join(text_of(browser, selector))


def wait_for(browser: webdriver.Chrome, selector: str, *texts: str) -> None:
    """Wait until the page shows these texts."""
    with suppress(AssertionError):
        wait_until(lambda: text_of(browser, selector) == list(texts), selector, BACK_SECONDS)
    assert text_of(browser, selector) == list(texts)


def watch(browser: webdriver.Chrome, selector: str) -> None:
    """From now on the tab notes each text that these elements have together, also over a reload."""
    script = """
        window.seen = JSON.parse(sessionStorage.seen ?? "[]");
        new MutationObserver(() => {
          const text = [...document.querySelectorAll(%s)].map(element => element.textContent).join("|");
          if (text !== seen.at(-1)) seen.push(text);
          sessionStorage.seen = JSON.stringify(seen);
        }).observe(document, {subtree: true, childList: true, characterData: true});
    """
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script % json.dumps(selector)})


def seen(browser: webdriver.Chrome) -> list[str]:
    texts: list[str] = browser.execute_script("return window.seen")
    return texts


def network(browser: webdriver.Chrome, *, offline: bool) -> None:
    """Cut the tab off, or connect it again."""
    browser.set_network_conditions(offline=offline, latency=0, throughput=-1)


def fill_in(browser: webdriver.Chrome, button: str, **fields: str) -> None:
    """Enter texts into a form, and press its button."""
    for name, text in fields.items():
        field = browser.find_element(By.NAME, name)
        field.clear()
        field.send_keys(text)
    browser.find_element(By.XPATH, f"//button[.='{button}']").click()


@contextmanager
def in_the_background(*calls: Callable[[], None]) -> Iterator[None]:
    """Makes each call again and again, each in a thread, until the end of the block; at most CALLS times."""
    ended = threading.Event()

    def repeat(call: Callable[[], None]) -> None:
        for _ in range(CALLS):
            if ended.wait(0.1):
                break
            call()

    threads = [threading.Thread(target=repeat, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_every_recipe_is_tested() -> None:
    """The table lists each, and there is a test of each."""
    folder = Path(__file__).parents[2] / "docs" / "start" / "recipes"
    names = {path.stem for path in folder.glob("*.md")} - {"README"}
    assert set(re.findall(r"\]\(([\w-]+)\.md\)", (folder / "README.md").read_text())) == names
    assert {f"test_{name.replace('-', '_')}" for name in names} <= globals().keys()


def test_chat(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """Two write at once, a tab is reloaded, and PushUp restarts: both tabs show each message once, in order."""
    with Recipe("chat", tmp_path).running() as recipe:
        watch(browser, "#messages li")
        browser.get(recipe.url)
        first = browser.current_window_handle
        browser.switch_to.new_window("tab")
        second = browser.current_window_handle
        watch(browser, "#messages li")
        browser.get(recipe.url)
        wait_for(browser, "#state", "live")
        fill_in(browser, "Send", author="Ann", text="<b>hello</b>")
        wait_for(browser, "#messages li", "Ann<b>hello</b>")

        def write(author: str) -> None:
            assert recipe.post("/rooms/lobby", author=author, text=uuid.uuid4().hex[:8]) == 200

        with in_the_background(lambda: write("Ben"), lambda: write("Cem")):
            for _ in range(2):
                browser.refresh()
                wait_for(browser, "#state", "live")
        with closing(sqlite3.connect(tmp_path / "chat.db")) as database:
            messages = [author + text for author, text in database.execute("SELECT author, text FROM messages")]
        for tab in (first, second):
            browser.switch_to.window(tab)
            wait_for(browser, "#messages li", *messages)
            numbers = [[messages.index(each) for each in text.split("|") if each] for text in seen(browser)]
            assert all(each == sorted(set(each)) for each in numbers)
        published = [each["number"] for each in recipe.published("room:lobby")]
        assert sorted(published) == list(range(1, len(messages) + 1))
        assert published != sorted(published), "some should have been overtaken"

        recipe.kill_pushup()
        recipe.post("/rooms/lobby", author="Dan", text="who hears this?")
        recipe.start_pushup()
        for tab in (first, second):
            browser.switch_to.window(tab)
            wait_for(browser, "#messages li", *messages, "Danwho hears this?")
        browser.get(f"{recipe.url}/rooms/other")
        wait_for(browser, "#state", "live")
        assert text_of(browser, "#messages li") == []


def test_who_is_here(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """Ann and Ben see each other come, type and go, also over a reload; nobody is told what he types himself.

    Nobody else may publish.
    """
    with Recipe("who-is-here", tmp_path).running() as recipe, chromium() as bens:
        with Caller(recipe.address) as caller:
            message = {"channels": ["room:lobby"], "data": "from nobody"}
            assert caller.call("POST", "/v1/messages", message).status == 401
        for each, user in ((browser, "Ann"), (bens, "Ben")):
            each.get(recipe.url)
            fill_in(each, "Log in", user=user)
            wait_for(each, "#here li", "Ann", *(["Ben"] if user == "Ben" else []))
        wait_for(browser, "#here li", "Ann", "Ben")
        bens.find_element(By.NAME, "text").send_keys("he")
        wait_for(browser, "#typing", "Ben is typing …")
        wait_for(browser, "#typing", "")
        fill_in(bens, "Send", text="<b>hello</b>")
        for each in (browser, bens):
            wait_for(each, "#messages li", "Ben: <b>hello</b>")
        assert text_of(bens, "#typing") == [""]

        browser.execute_script(
            "window.changes = []; new MutationObserver(() => changes.push(1))"
            ".observe(document.getElementById('here'), { childList: true })"
        )
        bens.refresh()
        wait_for(bens, "#here li", "Ann", "Ben")
        wait_for(bens, "#messages li", "Ben: <b>hello</b>")
        assert browser.execute_script("return changes") == []
        bens.get("about:blank")
        wait_until(lambda: text_of(browser, "#here li") == ["Ann"], "Ben to leave at once", 15)


def test_notifications(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """What is for Ann is in both of her tabs, once, over reloads and a restart; Ben neither sees it nor gets it."""
    with Recipe("notifications", tmp_path).running() as recipe, chromium() as bens:
        for each, user in ((browser, "Ann"), (bens, "Ben")):
            each.get(recipe.url)
            fill_in(each, "Log in", user=user)
            wait_for(each, "#state", "live")
        first = browser.current_window_handle
        browser.switch_to.new_window("tab")
        second = browser.current_window_handle
        browser.get(recipe.url)
        wait_for(browser, "#state", "live")
        fill_in(bens, "Notify", to="Ann", text="<b>hello</b>")
        for tab in (first, second):
            browser.switch_to.window(tab)
            wait_for(browser, "#notifications li", "Ben: <b>hello</b>")
            assert browser.title == "(1) Notifications"

        outcome = bens.execute_async_script(
            """
            const [pushup, done] = arguments;
            import(`${pushup}/v1/pushup.js`).then(({ PushUp }) => {
              new PushUp({ credentials: "include", user: "Ben, on Ann's channel" }).subscribe(["user:Ann"], {
                cursor: "earliest",
                onMessage: done,
                onState: ({ state, reason }) => state === "stopped" && done(reason.status),
              });
            });
            """,
            f"http://{recipe.address}",
        )
        assert outcome == 403
        message = {"channels": ["user:Ann"], "data": {"id": "x", "text": "from nobody"}}
        with Caller(recipe.address) as caller:
            assert caller.call("GET", "/v1/poll?channel=user:Ann&timeout=0").status == 401
            assert caller.call("POST", "/v1/messages", message).status == 401

        session = bens.get_cookie("session")
        assert session

        texts = ["Ben: <b>hello</b>"]

        def notify() -> None:
            assert recipe.post("/send", f"session={session['value']}", to="Ann", text=str(len(texts))) == 302
            texts.insert(0, f"Ben: {len(texts)}")

        with in_the_background(notify):
            for _ in range(2):
                browser.refresh()
                wait_for(browser, "#state", "live")
        for tab in (first, second):
            browser.switch_to.window(tab)
            wait_for(browser, "#notifications li", *texts)

        recipe.kill_pushup()
        notify()
        recipe.start_pushup()
        for tab in (first, second):
            browser.switch_to.window(tab)
            wait_for(browser, "#notifications li", *texts)
        assert text_of(bens, "#notifications li") == []


@pytest.mark.parametrize("instead", ["", "model"])
def test_language_model(browser: webdriver.Chrome, tmp_path: Path, instead: str) -> None:
    """A second tab, a reload and a restart of PushUp in the middle: both tabs show the beginning, and at last all.

    The same with the agent of the document `instead` of its model.
    """
    answer = " ".join(["Let me count to 200:", *map(str, range(1, 201))])
    with Recipe("language-model", tmp_path, (0.05, 0.15), instead).running() as recipe:
        watch(browser, "#text")
        browser.get(recipe.url)
        fill_in(browser, "Ask", question="Can you count?")
        wait_until(lambda: len(joined(browser, "#text")) > 60, "the answer to grow")
        first, url = browser.current_window_handle, browser.current_url
        browser.switch_to.new_window("tab")
        second = browser.current_window_handle
        watch(browser, "#text")
        browser.get(url)
        wait_until(lambda: len(joined(browser, "#text")) > 60, "the second tab to have the beginning")
        browser.switch_to.window(first)
        browser.refresh()
        wait_until(lambda: len(joined(browser, "#text")) > 60, "the first tab to go on")
        assert joined(browser, "#text") != answer, "this was to be in the middle"
        recipe.restart_pushup()
        recipe.hurry()
        for tab in (first, second):
            browser.switch_to.window(tab)
            wait_for(browser, "#text, #state", answer, "finished")
            assert all(answer.startswith(text) for text in seen(browser))
        channel = "answer:" + url.rpartition("/")[2]
        pieces = [each for each in recipe.published(channel) if "piece" in each]
        assert [each["piece"] for each in pieces] == list(range(len(pieces)))
        browser.switch_to.new_window("tab")
        browser.get(url)
        wait_for(browser, "#text, #state", answer, "finished")


def test_job_progress(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """A tab that is opened in the middle or afterwards is right at once; none goes back; a failure is shown."""
    with Recipe("job-progress", tmp_path, (0.1, 0.3)).running() as recipe:
        watch(browser, "#percent")
        browser.get(recipe.url)
        fill_in(browser, "Start a job")
        wait_until(lambda: percent(browser) > 10, "progress")
        first, url = browser.current_window_handle, browser.current_url
        before = percent(browser)
        browser.switch_to.new_window("tab")
        second = browser.current_window_handle
        watch(browser, "#percent")
        browser.get(url)
        assert 100 > percent(browser) >= before
        browser.refresh()
        recipe.restart_pushup()
        assert percent(browser) < 100, "this was to be in the middle"
        recipe.hurry()
        last = "\n".join(f"picture {number} of 50: done" for number in range(43, 51))
        for tab in (first, second):
            browser.switch_to.window(tab)
            wait_for(browser, "#status, #percent, #log, #state", "", "finished", "100", last)
            percents = [int(text) for text in seen(browser) if text]
            assert percents == sorted(percents)
            assert len(percents) > 3
        browser.refresh()
        assert text_of(browser, "#status, #percent, #log") == ["finished", "100", last]

        fill_in(browser, "Start one that fails")
        wait_until(lambda: 10 < percent(browser) < 100, "progress")
        network(browser, offline=True)
        recipe.restart_pushup()
        channel = "job:" + browser.current_url.rpartition("/")[2]
        wait_until(lambda: [each["status"] for each in recipe.published(channel)][-1:] == ["failed"], "the end")
        recipe.restart_pushup()
        network(browser, offline=False)
        wait_for(browser, "#status, #percent", "failed", "58")
        assert joined(browser, "#log").splitlines()[-1] == "ValueError: picture 30 is not a picture"


class PushService(ThreadingHTTPServer):
    """Receives Web Push for one browser, in the place of its vendor's. `received`: what was pushed."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _PushHandler)
        self.received: list[str] = []
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.secret = os.urandom(16)

    @property
    def subscription(self) -> dict[str, Any]:
        """What the browser gives to its page."""
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        keys = {"p256dh": urlsafe_b64encode(point).decode(), "auth": urlsafe_b64encode(self.secret).decode()}
        return {"endpoint": f"http://{PUSH_HOST}:{self.server_port}/ann", "keys": keys}


@contextmanager
def push_service() -> Iterator[PushService]:
    with PushService() as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield service
        finally:
            service.shutdown()
            thread.join()


class _PushHandler(BaseHTTPRequestHandler):
    server: PushService

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        service = self.server
        text = http_ece.decrypt(body, private_key=service.key, auth_secret=service.secret, version="aes128gcm")
        assert self.headers["Authorization"].startswith("vapid t=")
        service.received.append(text.decode())
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_web_push(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """What Ann's open page shows is not pushed; once she has closed it, a push comes, and her browser shows it."""
    recipe = Recipe("web-push", tmp_path)
    application = tmp_path / "app.py"
    application.write_text(application.read_text().replace("UNREAD_SECONDS = 10", "UNREAD_SECONDS = 5"))
    with push_service() as service, recipe.running():
        allowed = {"permissions": ["notifications"], "origin": recipe.url}
        browser.execute_cdp_cmd("Browser.grantPermissions", allowed)
        subscribe = f"PushManager.prototype.subscribe = async () => ({json.dumps(service.subscription)});"
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": subscribe})
        browser.get(recipe.url)
        fill_in(browser, "Log in", user="Ann")
        wait_for(browser, "#state", "live")
        browser.find_element(By.ID, "notify").click()
        wait_for(browser, "#state", "subscribed")
        session = browser.get_cookie("session")
        assert session

        def send(text: str) -> None:
            assert recipe.post("/send", f"session={session['value']}", to="Ann", text=text) == 302

        send("seen")
        wait_for(browser, "#messages li", "Ann: seen")
        time.sleep(6)
        browser.get("about:blank")
        send("not seen")
        wait_until(lambda: bool(service.received), "the push")
        assert service.received == ["Ann: not seen"]
        assert recipe.post("/unread") == 401, "only PushUp may say so"

        browser.get(recipe.url)
        wait_for(browser, "#messages li", "Ann: seen", "Ann: not seen")
        assert notifications(browser) == [], "and the service worker is ready"
        browser.execute_cdp_cmd("ServiceWorker.enable", {})
        push = {"origin": recipe.url, "registrationId": "0", "data": service.received[0]}
        browser.execute_cdp_cmd("ServiceWorker.deliverPushMessage", push)
        wait_until(lambda: notifications(browser) == ["Ann: not seen"], "the notification")


def notifications(browser: webdriver.Chrome) -> list[str]:
    """The texts of those that the browser shows for the page."""
    script = """
        const done = arguments[0];
        navigator.serviceWorker.ready.then(worker => worker.getNotifications())
          .then(all => done(all.map(each => each.body)));
    """
    texts: list[str] = browser.execute_async_script(script)
    return texts


def percent(browser: webdriver.Chrome) -> int:
    return int(joined(browser, "#percent") or 0)
