"""The style, scripts and pictures of pages, with the hash of their content in their names: browsers keep them."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from aiohttp import web

from eventd.errors import NotFound

_TYPES: Final = {
    "css": "text/css",
    "mjs": "text/javascript",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "png": "image/png",
}
_DIGITS: Final = 12
_FOREVER: Final = "public, max-age=31536000, immutable"


class StaticFile(NamedTuple):
    """A file as it is sent. `name` has the first digits of the hash of all files, so that modules find each other."""

    media: str
    content: bytes
    compressed: bytes


@cache
def read_static() -> dict[str, StaticFile]:
    """Return all files by their path below `static`."""
    found: dict[str, StaticFile] = {}
    root = files("eventd.console") / "static"
    for folder, at in (("", root), ("vendor/", root / "vendor")):
        for one in at.iterdir() if at.is_dir() else ():
            media = _TYPES.get(one.name.rpartition(".")[2])
            if media is not None and one.is_file():
                content = one.read_bytes()
                found[f"{folder}{one.name}"] = StaticFile(media, content, gzip.compress(content, 9, mtime=0))
    return found


@cache
def release() -> str:
    """Return the digits of the hash of all files: the folder under which they are served."""
    whole = hashlib.sha256()
    for name, file in sorted(read_static().items()):
        whole.update(f"{name} {len(file.content)} ".encode() + file.content)
    return whole.hexdigest()[:_DIGITS]


def serve_static(request: web.Request, path: str) -> web.Response:
    """Return a file: `path` is the release and the file's path below `static`. Raises NotFound."""
    folder, _, name = path.partition("/")
    file = read_static().get(name) if folder == release() else None
    if file is None:
        raise NotFound("this file is not part of the console", hint="reload the page")
    headers = {
        "Cache-Control": _FOREVER,
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Vary": "Accept-Encoding",
    }
    content = file.content
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        content = file.compressed
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=content, content_type=file.media, charset="utf-8", headers=headers)
