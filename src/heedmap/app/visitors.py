"""Who a visitor is: what their browser alone knows, a number by chance in a cookie.

It is no password: it only tells whose results are whose, also after the page or the app was begun
anew. Where all see all results, nobody is given one.
"""

import re
import secrets
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers as Given
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_COOKIE = "heedmap-visitor"
_NUMBER = re.compile(r"[0-9a-f]{32}")
_YEAR = 365 * 24 * 3600  # seconds


def visitor_of(cookies: str) -> str:
    """The number in a `Cookie` header; empty if there is none, or something else."""
    try:
        found = SimpleCookie(cookies).get(_COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None and _NUMBER.fullmatch(found.value) else ""


class Visitors:
    """Gives a number to whoever opens the page without one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on; with the page goes a cookie."""
        opens = scope["type"] == "http" and scope["path"] == "/"
        if not opens or visitor_of(Given(scope=scope).get("cookie", "")):
            await self._app(scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                said = f"{_COOKIE}={secrets.token_hex(16)}; Max-Age={_YEAR}"
                headers = MutableHeaders(scope=message)
                headers.append("set-cookie", f"{said}; Path=/; HttpOnly; SameSite=Strict")
                headers["cache-control"] = "private, no-store"
            await send(message)

        await self._app(scope, receive, told)
