"""The commands of `routerd-eventd`."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import eventd
from eventd.cli.daemon import tls
from eventd.cli.program.command_line import Command, CommandLine, program
from eventd.cli.program.flags import Flags, shared_flags, with_settings
from eventd.cli.program.values import Duration
from eventd.cli.terminal.output import Column, DocumentFormat, Format, Output, text
from eventd.errors import CheckFailed, EventdError, SettingsError
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SECOND, SystemClock
from eventd.settings.environment import service_environment
from eventd.settings.model import Settings
from eventd.settings.problems import BadSettings, SettingRow
from eventd.settings.values import Endpoint

if TYPE_CHECKING:  # a command that needs no database does not load the libraries for it
    from eventd.cli.daemon.serving import Service
    from eventd.store.engine.claim import DatabaseClaim
    from eventd.store.engine.database import Database


class RouterdEventd(CommandLine):
    """All commands of `routerd-eventd`."""

    shared = shared_flags()


HELP = """Run a node of a federated event bus; operate it with `routerctl`.

Settings come from options, variables (EVENTD_…) and a file: `routerd-eventd serve --help` lists them, and
`routerd-eventd check` shows those in effect.
"""
app = typer.Typer(
    name="routerd-eventd",
    cls=RouterdEventd,
    help=HELP,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.callback()(program)
app.add_typer(tls.app, name="tls")
logger = logging.getLogger("eventd.serve")

TWO_SECONDS = Duration(2 * SECOND)
SETTINGS = (Column("SETTING", text("name")), Column("VALUE", text("value")), Column("FROM", text("origin")))
CHECKS = (Column("CHECK", text("name")), Column("STATE", text("state")), Column("DETAIL", text("detail")))


@app.command(cls=Command)
@with_settings()
def serve(
    flags: Flags,
    migrate: Annotated[
        bool,
        typer.Option("--migrate", help="Apply pending migrations on Postgres, too; on SQLite this always happens."),
    ] = False,
) -> None:
    """Run a node until a signal stops it.

    SIGTERM and SIGINT finish the work in progress, a second one exits at once, SIGHUP re-reads keys and secrets.
    """
    from eventd.cli.daemon.checking import keys_of, missing_group, require_extras
    from eventd.cli.daemon.open_files import raise_file_limit
    from eventd.cli.daemon.service_manager import ServiceManager
    from eventd.cli.daemon.serving import run_service
    from eventd.cli.gateway.lock import claimed, serving_lock
    from eventd.observe.log_lines import configure_logging

    settings = flags.load()
    keys_of(settings)  # an API open to all is refused before anything is touched, as is a missing package
    require_extras(settings)
    around = service_environment()
    colour = "NO_COLOR" not in around and around.get("TERM") != "dumb"
    configure_logging(sys.stderr, format=settings.log_format, level=settings.log_level, colour=colour)
    for warning in settings.warnings:
        logger.warning("setting questionable", extra={"warning": warning})
    database = _open(settings)

    def prepare() -> None:
        _prepare(database, apply=migrate or database.kind == "sqlite")
        if missing := missing_group(settings, database):
            logger.warning("group missing", extra={"warning": missing})

    try:
        if settings.standby and database.kind == "sqlite":
            raise SettingsError(
                "--standby needs Postgres: a SQLite file belongs to one machine",
                hint="leave out --standby (EVENTD_STANDBY), and let a service manager restart the node",
            )
        with serving_lock(database), claimed(database, settings.group or "", wait=settings.standby) as claim:
            if not settings.standby:
                prepare()
            raise_file_limit(settings)
            clock = SystemClock()
            announce = partial(_announce, database, clock.origin)
            manager = ServiceManager(around, clock)
            run_service(_service(settings, claim, prepare), settings, manager, clock, announce)
    finally:
        database.close()


def _announce(database: Database, origin: int, api: Endpoint) -> None:
    """Write the API's address and clock origin (µs) into the lock file of the database; nothing on Postgres."""
    from eventd.cli.gateway.lock import write_serving
    from eventd.cli.gateway.serving_file import ServingNode

    write_serving(database, ServingNode(str(api), origin))


def _service(settings: Settings, claim: DatabaseClaim | None, prepare: Callable[[], None]) -> Callable[[], Service]:
    """Return a function that creates the configured node, workers or standby on the running loop."""
    clock = SystemClock()

    def make(sockets: Sequence[socket.socket] = ()) -> Service:
        from eventd.api.listener.local_socket import LocalSocket

        local = LocalSocket(settings.data_dir) if settings.local_socket else None
        if settings.workers > 1:
            from eventd.cli.daemon.workers import Workers

            return Workers(settings, clock=clock, claim=claim, sockets=sockets, local=local)
        from eventd.node.node import Node

        return Node(settings, clock=clock, chance=SYSTEM, claim=claim, sockets=sockets, local=local)

    if not settings.standby or claim is None:
        return make
    from eventd.cli.daemon.checking import keys_of
    from eventd.cli.daemon.standby import Standby

    held = claim
    return lambda: Standby(settings, held, keys_of(settings), clock, prepare, make)


@app.command(cls=Command)
@with_settings("data_dir", "database_url", "database_url_file")
def migrate(
    flags: Flags,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be done; change nothing.")] = False,
    new_epoch: Annotated[
        bool, typer.Option("--new-epoch", help="Start a new epoch of the log: for a database restored from a copy.")
    ] = False,
) -> None:
    """Apply pending migrations to the database."""
    from eventd.cli.gateway.lock import serving_lock
    from eventd.log.core.head import read_head, renew_epoch
    from eventd.store.engine.head_file import forget_head
    from eventd.store.schema import migrations

    settings = flags.load()
    database = _open(settings, make=not plan)
    try:
        if plan:
            _show_plan(database, new_epoch=new_epoch)
            return
        with serving_lock(database):
            _say_applied(database.write_now(migrations.upgrade, now=SystemClock().now()))
            if new_epoch:
                before = database.read_now(read_head).epoch
                print(f"the log has the new epoch {database.write_now(renew_epoch)}; the previous one was {before}")
                if database.path is not None:
                    forget_head(database.path)
    finally:
        database.close()


@app.command(cls=Command)
@with_settings()
def check(
    flags: Flags,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = "table",
) -> None:
    """Check whether a node would start, and show its settings; exits with status 4 if it would not."""
    from eventd.cli.daemon.checking import Check, check_database, check_settings
    from eventd.cli.gateway.session import may_colour

    shown: list[SettingRow] = []
    try:
        settings = flags.load()
    except BadSettings as error:
        checks = [Check("settings", "failed", str(problem)) for problem in error.problems]
    else:
        shown = settings.describe()
        checks = [*check_settings(settings), *check_database(settings)]
    failed = [check for check in checks if check.state == "failed"]
    out = Output(output, headers=True, colour=may_colour())
    if out.is_document:
        out.value({"ok": not failed, "settings": _objects(shown), "checks": _objects(checks)})
    else:
        if out.is_table and shown:
            out.table(SETTINGS, _objects(shown))
            out.line()
        out.rows(CHECKS, _objects(checks), name=lambda row: str(row["name"]))
    if failed:
        raise CheckFailed(f"{len(failed)} of {len(checks)} checks failed", hint="a node would not start")


@app.command(cls=Command)
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the nodes running until Ctrl-C, to try things.")] = False,
    callbacks: Annotated[
        bool,
        typer.Option("--callbacks", help="Show callbacks instead: one node, and a receiver that dies and comes back."),
    ] = False,
    console: Annotated[
        bool, typer.Option("--console", help="Keep three nodes running until Ctrl-C, with one console for all of them.")
    ] = False,
) -> None:
    """Run three nodes on this machine: they federate, one is killed and comes back, nothing is lost."""
    if callbacks and (keep or console):
        raise typer.BadParameter("--callbacks keeps nothing running: leave out --keep and --console")
    if callbacks:
        from eventd.cli.demo import callbacks as pushing

        pushing.run()
        return
    if console:
        from eventd.cli.demo import console as watching

        watching.run()
        return
    from eventd.cli.demo import demo as play

    play.run(keep=keep)


@app.command(cls=Command)
def probe(
    ready: Annotated[bool, typer.Option("--ready", help="Ask whether the node is ready, not only alive.")] = False,
    standby_ok: Annotated[bool, typer.Option("--standby-ok", help="With --ready, accept a standby.")] = False,
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="API of the node (default: the node on this machine).")
    ] = "",
    data_dir: Annotated[
        str, typer.Option("--data-dir", metavar="PATH", help="Folder of the node on this machine. [EVENTD_DATA_DIR]")
    ] = "",
    key_file: Annotated[
        str, typer.Option("--key-file", metavar="PATH", help="File that holds an API key. [EVENTD_API_KEY_FILE]")
    ] = "",
    ca_file: Annotated[
        str,
        typer.Option("--ca-file", metavar="PATH", help="PEM file of CAs that verify an https server. [EVENTD_CA_FILE]"),
    ] = "",
    client_cert: Annotated[
        str,
        typer.Option(
            "--client-cert",
            metavar="PATH",
            help="PEM file of a certificate to show to an https server. [EVENTD_CLIENT_CERT_FILE]",
        ),
    ] = "",
    client_key: Annotated[
        str,
        typer.Option(
            "--client-key",
            metavar="PATH",
            help="PEM file of the certificate's private key. [EVENTD_CLIENT_KEY_FILE]",
        ),
    ] = "",
    timeout: Annotated[
        Duration, typer.Option("--timeout", metavar="DURATION", help="Maximum time for each step.")
    ] = TWO_SECONDS,
) -> None:
    """Exit with status 0 if a node is alive, or with --ready if it is ready; for health checks of containers."""
    from eventd.cli.daemon.probe import Probe, ProbeFailed, run_probe

    if timeout <= 0:
        raise typer.BadParameter("--timeout must be longer than 0s")
    asked = Probe(ready, standby_ok, server, data_dir, key_file, ca_file, client_cert, client_key, timeout / SECOND)
    try:
        print(run_probe(asked))
    except ProbeFailed as error:
        raise EventdError(str(error)) from None


@app.command(cls=Command)
def simulate(
    ctx: typer.Context,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of runs.")] = 50,
    first: Annotated[
        int, typer.Option("--from", min=0, help="Seed of the first run, 0 or more; each next one is one higher.")
    ] = 1,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Play only this seed, 0 or more, and show its plan.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Play only the plan in this file, and show it.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="With --seed or --plan, show every step.")] = False,
    shrink: Annotated[
        bool,
        typer.Option(
            "--shrink",
            help="With --seed or --plan, search the smallest plan that fails in the same way; it is written to a file.",
        ),
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Number of processes that share the runs.")] = 1,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", help="Keep the results in this file, and play only seeds that it does not have."
        ),
    ] = None,
    postgres: Annotated[
        str,
        typer.Option(
            "--postgres",
            metavar="URL",
            help="Run nodes on this Postgres server, in databases that are created for the command, and dropped."
            " Pass its password in PGPASSWORD.",
        ),
    ] = "",
    output: Annotated[DocumentFormat, typer.Option("-o", "--output", help="Output format.")] = "table",
) -> None:
    """Run whole nodes on virtual time with faults, and check that nothing is lost; exits with status 4 otherwise.

    It tests the node with this machine's Python and SQLite, or with a Postgres server, and touches no data.
    """
    from eventd.cli.simulate import simulate as simulation

    if seed is not None and plan is not None:
        raise typer.BadParameter("--seed and --plan each play one run: leave out one of them")
    if seed is None and plan is None and (trace or shrink):
        raise typer.BadParameter(f"{'--trace' if trace else '--shrink'} is for one run: name it with --seed or --plan")
    if seed is not None or plan is not None:
        of_many = {"seeds": "--seeds", "first": "--from", "jobs": "--jobs", "report": "--report", "output": "-o"}
        for name, option in of_many.items():
            if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE":
                raise typer.BadParameter(f"--seed and --plan play one run, and show it as text: leave out {option}")
        simulation.run_one(seed, plan, trace=trace, shrink=shrink, postgres=postgres)
        return
    simulation.run_seeds(first, seeds, jobs=jobs, output=output, file=report, postgres=postgres)


@app.command(cls=Command)
def version() -> None:
    """Show the version."""
    print(f"routerd-eventd {eventd.__version__}")


def _open(settings: Settings, *, make: bool = True) -> Database:
    from eventd.store.engine.database import Database
    from eventd.store.engine.foreign_file import refuse_foreign
    from eventd.store.engine.private_file import close_to_others

    database = Database(settings.database_url)
    try:
        refuse_foreign(database.path)  # before its mode, its journal or a folder is touched
        if make:
            settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if make and database.path is not None:
            for file in close_to_others(database.path):
                logger.warning("database made private", extra={"file": str(file)})
    except BaseException:
        database.close()
        raise
    return database


def _prepare(database: Database, *, apply: bool) -> None:
    """Apply pending migrations. Without `apply`, raise `DatabaseUnusable` if there are any, with the command to run."""
    from eventd.store.schema import migrations

    if not apply:
        migrations.require_current(database, hint="run `routerd-eventd migrate`, or start with --migrate")
    elif database.read_now(migrations.pending):
        applied = database.write_now(migrations.upgrade, now=SystemClock().now())
        logger.info("schema upgraded", extra={"applied": applied})


def _show_plan(database: Database, *, new_epoch: bool) -> None:
    from eventd.store.schema import migrations

    if database.path is not None and not database.path.exists():
        print(f"the database {database.label()} does not exist and would be created")
    else:
        missing = database.read_now(migrations.pending)
        print("\n".join(f"would apply {name}" for name in missing) or "the schema is up to date")
    if new_epoch:
        print("would start a new epoch")


def _say_applied(applied: Sequence[str]) -> None:
    from eventd.store.schema import migrations

    for name in applied:
        print(f"applied {name}")
    if not applied:
        print(f"the schema is up to date: {migrations.NEWEST}")


def _objects(rows: Iterable[Any]) -> list[dict[str, str]]:
    return [row._asdict() for row in rows]
