"""PushUp for FastAPI: docs/guide/fastapi.md. Starlette alone has no dependencies, which the list of a page needs."""

from asyncio import to_thread
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from inspect import iscoroutinefunction
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from pushup.frameworks.site import SCRIPTS, Live, MayRead, Site, decision, script


class PushUp(Site):
    """The arguments are those of `Site`, and `user`: a dependency that returns the user's id, or None for a stranger.

    `channels` gets that id. `app.include_router(pushup.router)` serves the scripts and `/pushup/token`, and at the
    application's shutdown waits up to 2 s for what is being published.
    """

    def __init__(self, url: str, *, user: Callable[..., Any] = lambda: None, **settings: Any) -> None:
        super().__init__(url, **settings)
        self._user = user
        self._token_route = f"pushup_token_{id(self)}"
        self.router = APIRouter(prefix="/pushup", include_in_schema=False, lifespan=self._lifespan)

        @self.router.get("/token", name=self._token_route)
        def token(user: Annotated[Any, Depends(user)]) -> JSONResponse:
            if user is None:
                raise HTTPException(401)
            return JSONResponse(self.token(user, str(user)), headers={"Cache-Control": "no-store"})

        @self.router.get("/{name}.js")
        def module(name: str) -> Response:
            if f"{name}.js" not in SCRIPTS:
                raise HTTPException(404)
            return Response(script(f"{name}.js"), media_type="text/javascript")

    @asynccontextmanager
    async def _lifespan(self, _app: Any) -> AsyncIterator[None]:
        yield
        await to_thread(self.close)

    def live(self, *channels: str) -> Callable[..., Live]:
        """A dependency for the page's function: takes the cursor before the function reads its list.

        It must come before dependencies that begin a transaction. `live("ID OF THE LIST")` is the element for the page.
        """

        def live(
            request: Request, cursor: Annotated[str, Depends(self.cursor)], user: Annotated[Any, Depends(self._user)]
        ) -> Live:
            token_path = request.url_for(self._token_route).path
            return self.live_page(cursor, channels, request.path_params, user, token_path)

        return live

    def may_poll(self, may_read: MayRead) -> Callable[..., Awaitable[JSONResponse]]:
        """A decorator: `may_read(user, channel)` becomes the function of the route for PushUp's `authorize_url`."""
        ask: Any = may_read if iscoroutinefunction(may_read) else lambda *asked: run_in_threadpool(may_read, *asked)

        async def view(
            channel: Annotated[list[str], Query()], user: Annotated[Any, Depends(self._user)]
        ) -> JSONResponse:
            allowed = None if user is None else [await ask(user, each) for each in channel]
            status, body = decision(allowed, user)
            return JSONResponse(body, status)

        return view
