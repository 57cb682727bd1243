"""routerctl support-bundle: writes settings, states, metrics and logs of a node, without secrets, to one archive."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from eventd import __version__
from eventd.cli.gateway.bundle import ANSWERS, MANIFEST
from eventd.cli.gateway.session import Session, connected_without_table
from eventd.cli.support.collecting import (
    FIXED,
    NAMELESS,
    UNNAMED,
    Collected,
    collect_answers,
    read_logs,
    scrape_twice,
    versions,
)
from eventd.cli.terminal.output import note
from eventd.errors import EventdError, Invalid
from eventd.text.arguments import as_argument
from eventd.text.plural import counted
from eventd.text.size import format_size

MOST_BYTES: Final = 50 << 20
"""Maximum size of a bundle's files together, before they are compressed."""
PAUSE: Final = 10.0
"""Seconds between the two scrapes of the metrics."""
NEVER: Final = (
    "payloads and subjects of events",
    "records of topics",
    "secrets, keys and tokens, and the files that hold them",
    "headers of callbacks, variables of plugins, and annotations",
    "user info, queries and fragments of URLs",
    "sessions and cookies of the console",
)


@connected_without_table
async def support_bundle(
    session: Session,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write (default: support-TIME.tar.gz, here).")
    ] = None,
    log: Annotated[
        list[Path] | None,
        typer.Option("--log", metavar="FILE", help="Log file of the node (default: the journal); repeatable."),
    ] = None,
    anonymize: Annotated[
        bool, typer.Option("--anonymize", help="Replace names and addresses by words that cannot be turned back.")
    ] = False,
    brief: Annotated[
        bool, typer.Option("--brief", help="Read the metrics once instead of twice: saves 10 s, but shows no rates.")
    ] = False,
) -> None:
    """Write settings, states, metrics and logs of a node to one archive, without secrets and payloads.

    Read it before you send it on. Commands read it as they read a node: `routerctl --from FILE doctor`.
    """
    from eventd.api.framework.moments import show_time
    from eventd.runtime.clock import SystemClock

    clock = SystemClock()
    now = str(show_time(clock.now()))
    place = out or Path(f"support-{now[:19].replace(':', '')}Z.tar.gz")
    if place.exists():
        raise Invalid(f"{place} exists", hint="name another file with --out")
    found = await collect_answers(session)
    if "node.settings" in found.missing and not session.is_remote and session.node.bundle is None:
        _add_settings(found, session)
    await scrape_twice(found, lambda: _scrape(session), clock.sleep, 0 if brief else PAUSE)
    read_logs(found, log or [])
    manifest, files = _contents(found, now, session.serving(), anonymize=anonymize)
    size = _write(place, clock.now() // 1_000_000, manifest, files)
    lines = [f"{place} written: {counted(len(files) + 1, 'file')}, {size:,} bytes"]
    missing = [f"note: {name} is missing: {reason}" for name, reason in manifest["missing"].items()]
    session.out.outcome({"file": str(place), **manifest}, *lines, name=lambda row: row["file"], notes=missing)
    if session.out.is_table:
        note(f"note: read it before you send it on; routerctl --from {as_argument(str(place), 'FILE')} doctor shows it")


def _add_settings(found: Collected, session: Session) -> None:
    """Add the settings that a node would start with, if there is no answer of a running node."""
    from eventd.settings.loading import load

    try:
        rows = load(session.node.flags()).describe()
    except EventdError as error:
        found.missing["settings.json"] = error.message
        return
    found.texts["settings.json"] = _json([row._asdict() for row in rows]).decode()


def _scrape(session: Session) -> str:
    from eventd.cli.gateway.api_gateway import ApiGateway
    from eventd.errors import Unavailable

    gateway = session.gateway
    if not isinstance(gateway, ApiGateway):
        raise Unavailable("no node runs")
    status, content = gateway.exchange("GET", "/metrics", None, MOST_BYTES)
    if status != 200:
        raise Unavailable(f"the node answers {status} to /metrics")
    return content.decode("utf-8", "backslashreplace")


def _contents(found: Collected, now: str, serving: str, *, anonymize: bool) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the manifest and the files of a bundle, without secrets; with `anonymize`, without names, too."""
    from eventd.cli.support.redaction import redact, redact_text

    answers: dict[str, Any] = {name: redact(recorded) for name, recorded in found.answers.items()}
    texts = {name: redact_text(text) for name, text in found.texts.items()}
    missing = {name: redact_text(reason) for name, reason in found.missing.items()}
    if anonymize:
        from eventd.cli.support.anonymity import Pseudonyms
        from eventd.runtime.chance import SYSTEM

        names = Pseudonyms(SYSTEM)
        for name, recorded in answers.items():
            if name not in UNNAMED:
                names.learn(recorded, nameless=name in NAMELESS)
        for text in texts.values():
            names.learn_text(text)
        answers = {
            name: names.value(recorded, fixed=FIXED.get(name, frozenset())) for name, recorded in answers.items()
        }
        texts = {
            name: names.figures(text) if name.endswith(".prom") else names.log(text) for name, text in texts.items()
        }
        missing = {name: names.text(reason) for name, reason in missing.items()}
    files = {f"{ANSWERS}{name}.json": _json(recorded) for name, recorded in answers.items()}
    files["versions.json"] = _json(versions())
    files |= {name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()}
    kept, left = {}, MOST_BYTES
    for name, content in files.items():
        if len(content) > left:
            missing[name] = f"{format_size(len(content))}: the bundle would be larger than {format_size(MOST_BYTES)}"
        else:
            kept[name], left = content, left - len(content)
    manifest = {
        "bundle": 1,
        "madeAt": now,
        "madeBy": f"routerctl {__version__}",
        "serving": serving,
        "anonymized": anonymize,
        "files": {name: {"bytes": len(content), "sha256": _digest(content)} for name, content in kept.items()},
        "missing": missing,
        "never": list(NEVER),
    }
    return manifest, kept


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n").encode("utf-8", "backslashreplace")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(place: Path, at: int, manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> int:
    """Write the archive, readable by its user alone; return its size in bytes. A file that exists is never replaced."""
    folder = place.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz") or "support"
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=at) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for name, content in {MANIFEST: _json(manifest), **files}.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mtime, member.mode = len(content), at, 0o600
            archive.addfile(member, io.BytesIO(content))
    try:
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(packed.getvalue())
        except OSError:
            place.unlink(missing_ok=True)  # a part of an archive: the disk is full
            raise
    except OSError as error:
        raise Invalid(f"cannot write {place}: {error.strerror or error}", hint="name another file with --out") from None
    return len(packed.getvalue())
