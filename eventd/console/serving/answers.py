"""Responses of the console, with headers that prevent pages from running or loading anything foreign, and other sites
from framing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from aiohttp import web

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types console",
    )
)
"""The content security policy of all pages: no inline script, style or handler counts."""
FOREIGN_POLICY: Final = "; ".join(
    (
        "sandbox",
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""The policy of pages that other programs have written, which hold their styles and pictures themselves."""
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_KEPT: Final = "private, no-cache"
_HTTPS_ONLY: Final = "max-age=31536000"
_UNCOMPRESSED_CHARACTERS: Final = 1024
"""A page with more characters than this is compressed."""


def html(text: str, status: int = 200, *, is_preview: bool = False) -> web.Response:
    """Return a page.

    `is_preview`: it answers a form, and shows what the visitor has typed and what it would change. The browser may keep
    it for the way back to it; otherwise it shows an error there, because it must not send the form again by itself.
    """
    headers = {**HEADERS, "Cache-Control": _KEPT} if is_preview else HEADERS
    response = web.Response(text=text, status=status, content_type="text/html", headers=headers)
    if len(text) > _UNCOMPRESSED_CHARACTERS:
        response.enable_compression()
    return response


def foreign(content: bytes) -> web.Response:
    """Return a page that another program has written: it can do nothing, and belongs to no origin."""
    headers = {**HEADERS, "Content-Security-Policy": FOREIGN_POLICY}
    return web.Response(body=content, content_type="text/html", charset="utf-8", headers=headers)


def download(name: str, content: bytes) -> web.Response:
    """Return a file that the browser saves and never shows."""
    headers = {**HEADERS, "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return web.Response(body=content, content_type="application/octet-stream", headers=headers)


def see(url: str) -> web.Response:
    """Return the answer that sends the browser to another page."""
    return web.Response(status=303, headers={**HEADERS, "Location": url})


def keep_to_https(response: web.StreamResponse) -> None:
    """Tell the browser to use HTTPS from now on: only for a node with TLS of its own."""
    response.headers["Strict-Transport-Security"] = _HTTPS_ONLY
