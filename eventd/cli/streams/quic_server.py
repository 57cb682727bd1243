"""Shared by the commands that speak to a node over QUIC: the options that name it, and how they run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from eventd.cli.gateway.session import Decorator, Session, offline
from eventd.errors import Forbidden, Invalid, SecretUnreadable, Unauthorized

if TYPE_CHECKING:
    from eventd.client import StreamClient

PATIENCE: Final = 60.0
"""Seconds for which a request is repeated after its connection broke."""


def _server(kind: Any, *names: str, **about: Any) -> Any:
    return Annotated[kind, typer.Option(*names, rich_help_panel="The node", show_default=False, **about)]


class QuicServerOptions(NamedTuple):
    """The options that name a node's QUIC listener, and how it and the client prove who they are."""

    quic_server: str
    token_file: Path | None
    ca_certificate: Path | None
    certificate_pin: str
    certificate_name: str
    insecure: bool

    def client(self, tenant: str) -> StreamClient:
        """Return a client for one tenant, not yet connected. Raises `MissingExtra`, `Invalid` and BadParameter."""
        from eventd.quic.library import require

        require("a connection over QUIC")
        from eventd.client import StreamClient

        if "://" in self.quic_server:
            hint = "such as 127.0.0.1:5000; the URL of the node's API is another address"
            raise typer.BadParameter(f"--server must be HOST:PORT of the node's QUIC listener, {hint}")
        if self.insecure and (self.ca_certificate or self.certificate_pin):
            raise typer.BadParameter("--insecure contradicts --ca and --pin: leave one out")
        if self.ca_certificate is not None and not self.ca_certificate.is_file():
            raise SecretUnreadable(
                f"cannot read {self.ca_certificate}", hint="name the PEM file of the CA, or of the node's certificate"
            )
        return StreamClient(
            self.quic_server,
            tenant,
            self.token_file or "",
            ca=self.ca_certificate or "",
            pin=self.certificate_pin,
            server_name=self.certificate_name,
            verify=not self.insecure,
            patience=PATIENCE,
        )


OPTIONS: Final[dict[str, tuple[Any, Any]]] = {
    "quic_server": (
        _server(
            str,
            "--server",
            metavar="HOST:PORT",
            envvar="EVENTD_STREAM_SERVER",
            help="QUIC listener of the node, as `EVENTD_QUIC_LISTEN` sets it there.",
        ),
        inspect.Parameter.empty,
    ),
    "token_file": (
        _server(
            Path | None,
            "--token-file",
            metavar="PATH",
            envvar="EVENTD_STREAM_TOKEN_FILE",
            help="File that holds a stream token or an API key.",
        ),
        None,
    ),
    "ca_certificate": (
        _server(
            Path | None,
            "--ca",
            metavar="PATH",
            envvar="EVENTD_STREAM_CA_FILE",
            help="PEM file of the CAs that verify the node, or of its own certificate, instead of the system's CAs.",
        ),
        None,
    ),
    "certificate_pin": (
        _server(
            str,
            "--pin",
            metavar="PIN",
            help="SHA-256 of the node's certificate in hexadecimal, or of its public key as sha256//BASE64.",
        ),
        "",
    ),
    "certificate_name": (
        _server(
            str,
            "--server-name",
            metavar="NAME",
            help="Name that the node's certificate must have, instead of HOST; not checked with --pin.",
        ),
        "",
    ),
    "insecure": (
        _server(bool, "--insecure", help="Do not verify the node's certificate; only for a loopback address."),
        False,
    ),
}
"""The declaration and the default of each option, by the name of its parameter."""


def over_quic(*names: str) -> Decorator:
    """Decorate an async command that takes a `Session` and the `QuicServerOptions` first.

    The options that name the node follow the command's own options, and then the shared options with these names.
    """

    def decorate(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(session: Session, **given: Any) -> None:
            from eventd.cli.gateway.event_loop import run_to_end  # loads asyncio, which help does not need

            server = QuicServerOptions(**{name: given.pop(name) for name in OPTIONS})
            run_to_end(lambda: _run(command(session, server, **given), server), _close_nothing)

        own = list(inspect.signature(command, eval_str=True).parameters.values())
        run.__signature__ = inspect.Signature([own[0], *own[2:]])  # type: ignore[attr-defined]
        return offline(*names, **OPTIONS)(run)

    return decorate


async def _run(command: Awaitable[None], server: QuicServerOptions) -> None:
    try:
        await command
    except Unauthorized as error:
        if server.token_file is not None:
            raise
        raise Unauthorized(f"{error.message}: no token was given", hint="name its file with --token-file") from None


async def _close_nothing() -> None:
    """Do nothing: the client is closed by the command."""


def forbidden(permission: str) -> Forbidden:
    """Return the error for a request that needs a permission its token does not give."""
    return Forbidden(f"the token does not allow {permission}", hint="use one with this permission")


def read_payload(text: str, what: str, most: int) -> bytes:
    """Return an argument as bytes; for `-` those of standard input. Raises `Invalid` if there are more than `most`."""
    import os

    from eventd.cli.terminal.documents import read_input

    content = read_input("-", most) if text == "-" else os.fsencode(text)
    if len(content) > most:
        where = "standard input" if text == "-" else what
        raise Invalid(f"{where} has more than {most >> 20} MiB", hint="write smaller payloads; --batch reads lines")
    return content
