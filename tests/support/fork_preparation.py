"""What each command and each node does at its start, the same each time: the fork server does it once, for all forks.

It is most of the processor time of a start: importing modules, reading the parameters of the commands, finding the
handlers of the API's routes, and compiling the paths of the routes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import NoReturn

import typer.main
from aiohttp.web import Request, UrlDispatcher

from eventd.api.framework.endpoint import load
from eventd.api.framework.mount import aiohttp_path
from eventd.api.routes import ROUTES
from eventd.cli import routerctl_commands, routerd_eventd_commands
from tests.support.source import ROOT

_COMMANDS = ("daemon", "federation", "gateway", "program", "resources", "terminal", "topics")
_ROOMS = ("api", *(f"cli.{folder}" for folder in _COMMANDS), "net", "node", "observe", "quic", "resources", "store")
"""Modules that many commands import after they have parsed their arguments."""
_LIBRARIES = (
    "alembic.command",
    "cryptography.x509",
    "encodings.idna",
    "encodings.utf_8_sig",
    "federation.ed25519",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    "typer._click.decorators",
    "uvloop",
)


def prepare() -> None:
    """Import modules, and fill the caches that forks inherit: of commands, of endpoints, and of patterns in `re`."""
    for module in (*_LIBRARIES, *_modules()):
        with contextlib.suppress(ImportError):  # an optional package that is not installed
            import_module(module)
    typer.main.get_command = cache(typer.main.get_command)
    for program in (routerd_eventd_commands, routerctl_commands):
        typer.main.get_command(program.app)
    routes = UrlDispatcher()
    for route in ROUTES:
        load(route)
        routes.add_route(route.method, aiohttp_path(route), _answer)


def _modules() -> Iterator[str]:
    files = (file for room in _ROOMS for file in (ROOT / "eventd" / room.replace(".", "/")).rglob("*.py"))
    return (".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files)


async def _answer(_: Request) -> NoReturn:
    raise AssertionError("the fork server answers no requests")
