"""Collects the content of a support bundle: answers of operations, metrics, versions and lines of logs."""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from eventd.cli.gateway.session import Session
from eventd.cli.support.journal import read_journal
from eventd.errors import EventdError
from eventd.store.engine.address import sqlite_version

LOG_LINES: Final = 10_000
LONGEST_LINE: Final = 16_384
"""Maximum characters of a line of a log."""
MOST_DESCRIBED: Final = 500
"""Maximum number of resources that are described one by one."""
UNIT: Final = "routerd-eventd*"

WHOLE: Final[Mapping[str, Mapping[str, Any]]] = {
    "doctor.examine": {},
    "groups.status": {},
    "resources.list": {},
    "node.settings": {},
    "rates.show": {"limit": 200},
    "subscriptions.list": {},
    "callbacks.list": {},
    "plugins.list": {},
    "dynamic.list": {"limit": 200},
    "jobs.list": {"limit": 100},
    "queues.list": {"limit": 200},
    "topology.show": {},
    "lake.status": {},
    "keys.list": {},
    "routemaster.topics": {},
    "routemaster.subscribers": {},
    "actions.list": {"limit": 200},
    "audits.list": {"limit": 100},
}
"""The operations whose answers are recorded, with their parameters. None of them shows events or payloads."""
NAMELESS: Final = frozenset({"doctor.examine", "rates.show"})
"""The operations whose members `name` hold words of the product and not names chosen by the operator."""
UNNAMED: Final = frozenset({"node.settings", "lake.status"})
"""The operations from which no names are learned."""
FIXED: Final[Mapping[str, frozenset[str]]] = {"node.settings": frozenset({"name", "description"})}
"""Members that hold texts of the product alone, by operation."""
OF_GROUP: Final = ("links.status", "links.gaps", "deliveries.summary")
"""The operations whose answers are recorded for each group."""


@dataclass(slots=True)
class Collected:
    """The collected content: answers by operation, texts by file name, and the missing parts, with the reasons."""

    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    async def ask(self, session: Session, operation: str, **params: Any) -> Any:
        """Record the answer of an operation, or why there is none; return the answer, or None."""
        recorded = self.answers.setdefault(operation, [])
        try:
            answer = await session.call(operation, **params)
        except EventdError as error:
            recorded.append({"params": params, "error": error.message})
            self.missing[operation] = error.message
            return None
        recorded.append({"params": params, "answer": answer})
        return answer


async def collect_answers(session: Session) -> Collected:
    """Return the answers of all operations of a bundle; one that fails is noted as missing."""
    found = Collected()
    for operation, params in WHOLE.items():
        await found.ask(session, operation, **params)
    declared = found.answers["resources.list"][0].get("answer", {}).get("resources", [])
    for group in [row["metadata"]["name"] for row in declared if row["kind"] == "EventGroup"]:
        for operation in OF_GROUP:
            await found.ask(session, operation, group=group)
    ours = [row for row in declared if "routerd.net/" in row["apiVersion"]]
    for row in ours[:MOST_DESCRIBED]:
        await found.ask(session, "resources.describe", kind=row["kind"], name=row["metadata"]["name"])
    if len(ours) > MOST_DESCRIBED:
        found.missing["resources.describe"] = f"{len(ours) - MOST_DESCRIBED} resources more than {MOST_DESCRIBED}"
    return found


async def scrape_twice(
    found: Collected, scrape: Callable[[], str], sleep: Callable[[float], Awaitable[None]], seconds: float
) -> None:
    """Record the metrics of the node twice, with a pause between, so that rates can be computed."""
    for at in (1, 2):
        try:
            found.texts[f"metrics-{at}.prom"] = scrape()
        except EventdError as error:
            found.missing["metrics"] = error.message
            return
        if at == 1:
            await sleep(seconds)


def versions() -> dict[str, Any]:
    """Return the versions of the software that runs this command; those of the node are in its metrics."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "sqlite": sqlite_version(),
        "packages": dict(sorted((each.name, each.version) for each in distributions() if each.name)),
    }


def read_logs(found: Collected, files: list[Path]) -> None:
    """Record the last lines of these files; without any, those of the service manager's journal."""
    for at, file in enumerate(files, start=1):
        try:
            with file.open(encoding="utf-8", errors="backslashreplace") as lines:
                found.texts[f"log-{at}.txt"] = _last(lines)
        except OSError as error:
            found.missing[f"log {file.name}"] = error.strerror or str(error)
    if files:
        return
    try:
        text = read_journal(UNIT, LOG_LINES)
    except OSError as error:
        found.missing["log"] = f"journalctl: {error.strerror or error}"
        return
    if text.strip():
        found.texts["log.txt"] = _last(iter(text.splitlines(keepends=True)))
    else:
        found.missing["log"] = f"the journal shows no lines of {UNIT}: name files with --log"


def _last(lines: Iterator[str]) -> str:
    """Return the last `LOG_LINES` lines, each cut at `LONGEST_LINE` characters."""
    kept: deque[str] = deque(maxlen=LOG_LINES)
    for line in lines:
        kept.append(line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}… (cut)\n")
    return "".join(kept)
