"""PushUp for Flask: docs/guide/flask.md."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from flask import Blueprint, Flask, Response, abort, current_app, g, jsonify, request, url_for

from pushup.frameworks.site import SCRIPTS, Live, Markup, MayRead, Site, decision, script

View = Callable[..., Any]


class PushUp(Site):
    """The arguments are those of `Site`, and `user`: a function that returns the user's id, or None for a stranger.

    `channels` gets that id. The extension serves its scripts and `/pushup/token`. With an application factory, make it
    without arguments, and call `init_app` with them.
    """

    def __init__(self, app: Flask | None = None, url: str = "", **settings: Any) -> None:
        if app is not None:
            self.init_app(app, url, **settings)

    def init_app(self, app: Flask, url: str, *, user: Callable[[], Any] = lambda: None, **settings: Any) -> None:
        """Serve an application. If there are several, as in tests, the settings of the last one hold."""
        if "_client" in vars(self):
            self.close()
        super().__init__(url, **settings)
        self._user = app.ensure_sync(user)
        routes = Blueprint("pushup", __name__, url_prefix="/pushup")
        routes.add_url_rule("/token", view_func=self._token, endpoint="token")
        routes.add_url_rule("/<name>.js", view_func=_script, endpoint="script")
        app.register_blueprint(routes)
        app.jinja_env.globals["pushup"] = _element

    def __getattr__(self, name: str) -> Any:
        if "_client" not in vars(self):
            raise AttributeError("call init_app(app, url) before anything else is done with this PushUp()")
        raise AttributeError(f"PushUp has no {name}")

    def live(self, *channels: str) -> Callable[[View], View]:
        """A decorator for the view of a page: takes the cursor before the view reads its list.

        Put it right below the route. `{{ pushup("ID OF THE LIST") }}` in the template does the rest.
        """

        def decorate(view: View) -> View:
            @wraps(view)
            def wrapped(*given: Any, **names: Any) -> Any:
                cursor = self.cursor()
                g.pushup = self.live_page(cursor, channels, names, self._user(), url_for("pushup.token"))
                return current_app.ensure_sync(view)(*given, **names)

            return wrapped

        return decorate

    def may_poll(self, may_read: MayRead) -> View:
        """A decorator: `may_read(user, channel)` becomes the view for PushUp's `authorize_url`."""

        @wraps(may_read)
        def view() -> tuple[Response, int]:
            user = self._user()
            asked = request.args.getlist("channel")
            ask = current_app.ensure_sync(may_read)
            allowed = None if user is None else [ask(user, channel) for channel in asked]
            status, body = decision(allowed, user)
            return jsonify(body), status

        return view

    def _token(self) -> Response:
        user = self._user()
        if user is None:
            abort(401)
        response = jsonify(self.token(user, str(user)))
        response.cache_control.no_store = True
        return response


def _script(name: str) -> Response:
    if f"{name}.js" not in SCRIPTS:
        abort(404)
    return Response(script(f"{name}.js"), mimetype="text/javascript")


def _element(list_id: str, *channels: str, **options: Any) -> Markup:
    live: Live | None = g.get("pushup")
    if live is None:
        raise RuntimeError("decorate the view of this page with @pushup.live(CHANNEL), below its route")
    return live(list_id, *channels, **options)
