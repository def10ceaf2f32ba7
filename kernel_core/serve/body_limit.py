"""Refuses a body that is larger than any honest call."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 2_000_000
"""Thirty times the longest candidate that is parsed, and room for its problem."""


class BodyLimit:
    """Counts the bytes of a body as they come, so that the header `Content-Length` need not be believed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = 0
        is_too_large = False

        async def counted() -> Message:
            nonlocal seen, is_too_large
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > MOST_BYTES:
                is_too_large = True
                return {"type": "http.disconnect"}
            return message

        async def watched(message: Message) -> None:
            if not is_too_large:
                await send(message)

        try:
            await self._app(scope, counted, watched)
        except Exception:
            if not is_too_large:
                raise
        if is_too_large:
            await _refuse(send)


async def _refuse(send: Send) -> None:
    body = b'{"error": "ConfigError", "message": "the body is larger than %d bytes"}' % MOST_BYTES
    length = b"%d" % len(body)
    headers = [(b"content-type", b"application/json"), (b"content-length", length), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
