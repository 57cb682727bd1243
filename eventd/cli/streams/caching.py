"""routerctl cache: put, get."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from eventd.cli.gateway.session import Session
from eventd.cli.program.values import Duration
from eventd.cli.streams.quic_server import QuicServerOptions, forbidden, over_quic, read_payload
from eventd.cli.streams.stream_names import CacheArgument, read_cache
from eventd.cli.streams.subscribing import Form, payload_members
from eventd.cli.terminal.output import write_json
from eventd.errors import Forbidden, Invalid, NotFound
from eventd.streams.limits import MAX_VALUE
from eventd.text.invisible import printable

if TYPE_CHECKING:
    from eventd.streams.names import CacheName

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Key of the value.")]


@over_quic("output")
async def put(
    session: Session,
    server: QuicServerOptions,
    name: CacheArgument,
    key: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value, as text; - is standard input.")],
    ttl: Annotated[
        Duration | None,
        typer.Option("--ttl", metavar="DURATION", min=1000, help="Time to live (default: until it is evicted)."),
    ] = None,
) -> None:
    """Store a value in a cache, in place of an earlier one. The node keeps it in memory alone."""
    cache, key = read_cache(name), _read_key(key)
    content = read_payload(value, "the value", MAX_VALUE)
    client = server.client(cache.tenant)
    async with client:
        await client.reach()
        try:
            await client.cache(f"{cache.namespace}/{cache.cache}").put(key, content, ttl and ttl / 1_000_000)
        except NotFound:
            raise _undeclared(cache) from None
        except Forbidden:
            raise forbidden(f"cache.write:{cache.resource}") from None
    row = {"cache": name, "key": key, "bytes": len(content), "ttlSeconds": ttl and ttl / 1_000_000}
    session.out.outcome(row, f"cache/{name}: {key} stored", name=lambda row: str(row["key"]))


@over_quic()
async def get(
    session: Session,
    server: QuicServerOptions,
    name: CacheArgument,
    key: KeyArgument,
    form: Annotated[
        Form,
        typer.Option(
            "-o",
            "--output",
            metavar="FORM",
            help="raw: the value as it is; json: an object with the key and the value.",
        ),
    ] = "raw",
) -> None:
    """Print a value of a cache; exits with status 3 if there is none."""
    cache, key = read_cache(name), _read_key(key)
    client = server.client(cache.tenant)
    async with client:
        await client.reach()
        try:
            value = await client.cache(f"{cache.namespace}/{cache.cache}").get(key)
        except NotFound:
            raise _undeclared(cache) from None
        except Forbidden:
            raise forbidden(f"cache.read:{cache.resource}") from None
    if value is None:
        raise NotFound(f"cache {name} has no value for the key {key[:80]!r}")
    if form == "json":
        session.out.document(write_json({"key": key, **payload_members(value, "value")}))
    elif sys.stdout.isatty():  # where it must not control the terminal
        session.out.line(printable(value.decode("utf-8", "backslashreplace")))
    else:
        sys.stdout.buffer.write(value)


def _read_key(key: str) -> str:
    try:
        key.encode()
    except UnicodeEncodeError:
        raise Invalid("the key is not valid UTF-8", hint="keys are text; values may be any bytes") from None
    return key


def _undeclared(cache: CacheName) -> NotFound:
    return NotFound(
        f"cache {'/'.join(cache)} is not declared", hint="apply a StreamCache with its tenant, namespace and name"
    )
