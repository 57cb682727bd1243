"""Names of streams and caches on the command line: TENANT/NAMESPACE/STREAM and TENANT/NAMESPACE/CACHE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eventd.errors import Invalid

if TYPE_CHECKING:
    from eventd.streams.names import CacheName, StreamName

StreamArgument = Annotated[
    str, typer.Argument(metavar="TENANT/NAMESPACE/STREAM", help="Name of the stream, with its tenant and namespace.")
]
CacheArgument = Annotated[
    str, typer.Argument(metavar="TENANT/NAMESPACE/CACHE", help="Name of the cache, with its tenant and namespace.")
]


def read_stream(text: str) -> StreamName:
    """Return the stream of that name. Raises `Invalid`."""
    from eventd.streams.names import StreamName

    return StreamName(*_parts(text, "stream"))


def read_cache(text: str) -> CacheName:
    """Return the cache of that name. Raises `Invalid`."""
    from eventd.streams.names import CacheName

    return CacheName(*_parts(text, "cache"))


def _parts(text: str, what: str) -> list[str]:
    from eventd.streams.names import is_name

    parts = text.split("/")
    if len(parts) != 3:
        example = "t1/default/orders" if what == "stream" else "t1/default/primary"
        hint = f"write TENANT/NAMESPACE/{what.upper()}, such as {example}"
        raise Invalid(f"{text[:80]!r} is not the name of a {what}", hint=hint)
    for part in parts:
        if not is_name(part):
            raise Invalid(
                f"{text[:80]!r} is not the name of a {what}: {part[:80]!r} is not a name",
                hint="a name is 1 to 80 letters, digits, dots, dashes and underscores, and starts with a letter or"
                " digit",
            )
    return parts
