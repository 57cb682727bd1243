"""Checks whether a node would start with these settings on this database, without starting it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from eventd.api.keys.valid_keys import Keys
from eventd.api.quic.access import require_access
from eventd.api.routemaster.configuration import read_clients, read_root_key
from eventd.cli.gateway.lock import holder
from eventd.errors import DatabaseUnavailable, EventdError, MissingExtra, SettingsError
from eventd.lake.extra import require as require_lake
from eventd.log.core.head import lock_head
from eventd.quic.library import require
from eventd.resources.callback_configuration import callbacks
from eventd.resources.declared_tls import declared_tls, tls_of_callbacks
from eventd.resources.group_configuration import effective
from eventd.resources.kinds.registry import EVENT_GROUP
from eventd.resources.stream_configuration import stream_tenants
from eventd.runtime.clock import SystemClock
from eventd.settings.model import Settings
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.foreign_file import refuse_foreign
from eventd.store.engine.integrity import find_damage
from eventd.store.rows.keys import read_keys
from eventd.store.rows.registry import read_resources
from eventd.store.schema import migrations
from eventd.text.plural import counted
from eventd.tls.contexts import ServerTls
from eventd.tls.files import CertificateUnusable, ServerTlsConfig

LITTLE_SPACE = 1 << 30
NO_SPACE = 64 << 20
"""Free bytes of a disk below which the check warns, and below which it fails."""

R = TypeVar("R")
State = Literal["ok", "warning", "failed"]


class Check(NamedTuple):
    """The result of one check; `detail` describes it in words."""

    name: str
    state: State
    detail: str


def require_extras(settings: Settings) -> None:
    """Raise `MissingExtra` if a setting needs packages that are not installed."""
    if settings.quic_listen is not None:
        require("EVENTD_QUIC_LISTEN")
    if settings.lake:
        require_lake()


def check_settings(settings: Settings) -> Iterator[Check]:
    """Yield a warning for each doubtful setting, and the check whether the API requires a key."""
    for warning in settings.warnings:
        yield Check("settings", "warning", warning)
    yield from _check_tls("api tls", "the API", settings.api_tls, settings)
    yield from _check_routemaster(settings)
    try:
        keys = keys_of(settings)
    except SettingsError as error:
        yield Check("api keys", "failed", str(error))
        return
    except DatabaseUnavailable:
        yield Check("api keys", "warning", "the database does not answer, so its API keys are unknown")
        return
    yield from _check_streams(settings, keys)
    yield from _check_lake(settings)
    if keys:
        yield Check("api keys", "ok", "an API key is required")
    elif settings.api_listen.is_loopback:
        yield Check("api keys", "ok", "none: every user of this machine may use the API")
    else:
        yield Check("api keys", "warning", f"none: every client that reaches {settings.api_listen} may use the API")


def _check_tls(name: str, speaker: str, declared: ServerTlsConfig | None, settings: Settings) -> Iterator[Check]:
    """Yield the check whether the certificate of a listener can be used; none for plain HTTP."""
    if declared is None:
        return
    tls = ServerTls(declared, settings.credentials_directory, SystemClock().now)
    try:
        certificate = tls.value.certificate
    except CertificateUnusable as error:
        yield Check(name, "failed", str(error))
        return
    names = certificate.show_names() if certificate else ""
    yield Check(name, "ok", f"{speaker} speaks TLS, with a certificate for {names}")


def _check_routemaster(settings: Settings) -> Iterator[Check]:
    """Yield the checks of the Routemaster surface; none if it is off."""
    if settings.routemaster_listen is None:
        return
    yield from _check_tls("routemaster tls", "the Routemaster surface", settings.routemaster_tls, settings)
    try:
        key, clients = read_root_key(settings), read_clients(settings)
    except SettingsError as error:
        yield Check("routemaster", "failed", str(error))
        return
    root = "an administrator's key" if key else "no administrator's key"
    yield Check("routemaster", "ok", f"{root} and {counted(len(clients), 'token')} in the settings")


def _check_streams(settings: Settings, keys: Keys) -> Iterator[Check]:
    """Yield the checks of the QUIC listener; none if it is off."""
    if settings.quic_listen is None:
        return
    yield from _check_tls("streams tls", "the QUIC listener", settings.quic_tls, settings)
    try:
        require("EVENTD_QUIC_LISTEN")
        tenants = stream_tenants(_database_rows(settings, read_resources))
        require_access(settings, keys, tenants)
    except DatabaseUnavailable:
        yield Check("streams", "warning", "the database does not answer, so its tenants are unknown")
        return
    except EventdError as error:
        yield Check("streams", "failed", str(error))
        return
    if keys or tenants:
        yield Check("streams", "ok", f"a token is required; {counted(len(tenants), 'tenant')} declared")
    else:
        yield Check("streams", "ok", f"neither keys nor tenants: every client that reaches {settings.quic_listen}")


def _check_lake(settings: Settings) -> Iterator[Check]:
    """Yield a failure if the packages of a lake are missing."""
    try:
        if settings.lake:
            require_lake()
    except MissingExtra as error:
        yield Check("lake", "failed", str(error))


def keys_of(settings: Settings) -> Keys:
    """Return the API keys of the settings, and those of the database if it can be read.

    Raises `SettingsError` if other machines could use the API without a key and no setting allows it, and
    `DatabaseUnavailable` if that depends on a database that does not answer.
    """
    keys = Keys.of(settings)
    try:
        keys.reload_from(_database_rows(settings, read_keys))
    except DatabaseUnavailable as error:
        try:
            keys.require_any()
        except SettingsError:
            raise error from None
    keys.require_any()
    return keys


def _database_rows(settings: Settings, read: Callable[[Connection], list[R]]) -> list[R]:
    """Return rows of the database; none if it is missing or cannot be read, which other checks report.

    Raises `DatabaseUnavailable` if the database does not answer, so that it is unknown whether there are keys.
    """
    try:
        with closing(Database(settings.database_url)) as database:
            if database.path is not None and not database.path.exists():
                return []
            refuse_foreign(database.path)
            return database.read_now(read)
    except DatabaseUnavailable:
        raise
    except EventdError:
        return []


def check_database(settings: Settings) -> Iterator[Check]:
    """Yield the checks of the database and its folder. Creates neither of them, and changes no content."""
    try:
        database = Database(settings.database_url)
    except EventdError as error:
        yield Check("database", "failed", str(error))
        return
    try:
        if database.path is not None:
            yield _check_folder(database.path.parent)
        if database.path is not None and not database.path.exists():
            refuse_foreign(database.path)
            yield Check("database", "ok", f"{database.label()} does not exist yet: `serve` creates it")
            return
        yield from _look_inside(settings, database)
    except EventdError as error:
        yield Check("database", "failed", str(error))
    finally:
        database.close()


def _check_folder(folder: Path) -> Check:
    standing = next(place for place in (folder, *folder.parents) if place.exists())
    if not standing.is_dir():
        return Check("folder", "failed", f"{standing} is not a folder")
    if not os.access(standing, os.W_OK | os.X_OK):
        return Check("folder", "failed", f"{standing} cannot be written by this user")
    free = shutil.disk_usage(standing).free
    state: State = "failed" if free < NO_SPACE else "warning" if free < LITTLE_SPACE else "ok"
    only = "" if state == "ok" else "only "
    return Check("folder", state, f"{folder} can be written, {only}{free >> 20} MiB free")


def _look_inside(settings: Settings, database: Database) -> Iterator[Check]:
    refuse_foreign(database.path)
    missing = database.read_now(migrations.pending)
    yield Check("database", "ok", f"{database.label()} opens")
    if database.kind == "sqlite":
        damage = database.read_now(find_damage)
        yield Check("integrity", "failed" if damage else "ok", "; ".join(damage) or "no damage found")
    if missing:
        can_serve = database.kind == "sqlite"
        advice = "`serve` applies them" if can_serve else "run `routerd-eventd migrate`"
        yield Check(
            "schema", "ok" if can_serve else "failed", f"{counted(len(missing), 'migration')} to apply: {advice}"
        )
        return
    yield Check("schema", "ok", f"revision {migrations.NEWEST}, the newest")
    head = database.write_now(lock_head)  # rewrites the present value, which proves that writing works
    yield Check("writing", "ok", f"works; the log ends at {head.last}, epoch {head.epoch}")
    if problem := missing_group(settings, database):
        yield Check("group", "warning", problem)
    yield from _check_certificates(settings, database)
    if process := holder(database):
        yield Check("node", "ok", f"process {process} serves this database")


def _check_certificates(settings: Settings, database: Database) -> Iterator[Check]:
    """Yield a warning for each group, peer and callback whose certificate files cannot be used; one check if all can.

    A node starts even if files cannot be used: only the listener or link that needs them does not work.
    """
    declared = database.read_now(read_resources)
    groups = {name: one for name, one in effective(declared).items() if settings.group in (None, name)}
    uses = [*declared_tls(groups.values())]
    uses += tls_of_callbacks({name: one.tls for name, one in callbacks(declared).items()})
    problems = []
    for use in uses:
        tls = use.make(settings.credentials_directory, SystemClock().now)
        tls.refresh(force=True)
        if tls.trouble:
            problems.append(Check("certificates", "warning", f"{use.place}: {tls.trouble}"))
    yield from problems
    if uses and not problems:
        yield Check(
            "certificates",
            "ok",
            f"{counted(len(uses), 'listener or link', 'listeners and links')} with TLS: all files can be used",
        )


def missing_group(settings: Settings, database: Database) -> str:
    """Return a warning if the group that the settings name is not declared; empty otherwise."""
    if not settings.group:
        return ""
    declared = [row.name for row in database.read_now(read_resources, EVENT_GROUP.name)]
    if settings.group in declared:
        return ""
    return f"EventGroup {settings.group} is not declared (declared: {', '.join(declared) or 'none'})"
