"""The common frame of the measurements: it prints the settings, then each round, and finally the medians."""

from __future__ import annotations

import json
import sqlite3
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from eventd.bench import machine as this
from tests.support.postgres import PostgresServer, find_programs


def run_rounds(
    settings: dict[str, object], rounds: int, measure: Callable[[], dict[str, float]], *, digits: int = 3
) -> None:
    """Run a measurement repeatedly. Figures are rounded to `digits`."""
    print(json.dumps({"settings": settings | machine()}, indent=2))
    figures = []
    for number in range(rounds):
        figures.append(measure())
        print(json.dumps({"round": number + 1, **figures[-1]}), flush=True)
    common = [name for name in figures[0] if all(name in one for one in figures)]
    medians = {name: round(statistics.median(one[name] for one in figures), digits) for name in common}
    print(json.dumps({"medians": medians, "verified": True}, indent=2))


def machine() -> dict[str, object]:
    """Return what the figures depend on besides the options."""
    return {"sqlite": sqlite3.sqlite_version, **this.machine(Path(tempfile.gettempdir()))}


@contextmanager
def databases(kind: str) -> Iterator[Callable[[], str | None]]:
    """Yield a function that returns the URL of a new database; None stands for SQLite, whose file the measurement
    chooses."""
    if kind != "postgres":
        yield lambda: None
        return
    server = PostgresServer(find_programs())
    server.start()
    try:
        yield server.create_database
    finally:
        server.stop()
