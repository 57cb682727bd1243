"""Measures this project's node and other programs: `python -m tests.bench.rivals [--install] [--out FILE.md]`.

A runs on the first core, B on the second, the client on any. Rounds alternate between the contestants, so that a busy
minute of the machine affects all of them. Each figure is stored with a probe of the disk and the load.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from eventd.bench.machine import fsync_ms
from eventd.errors import EventdError
from tests.bench.rivals import mosquitto, nats, rabbitmq, redis
from tests.bench.rivals.contest import Contestant, Figures, NotMeasured, Task
from tests.bench.rivals.installing import install, install_for_python
from tests.bench.rivals.own import Own, OwnOnPostgres
from tests.bench.rivals.servers import ServerFailed
from tests.bench.rivals.table import Row, markdown, picture
from tests.bench.rounds import machine
from tests.support.option_values import names_of, read_count

PACKAGES = {one.__name__.rpartition(".")[2]: one.PACKAGE for one in (nats, redis, mosquitto, rabbitmq)}
CLIENTS = {one.__name__.rpartition(".")[2]: one.CLIENT.package for one in (nats, rabbitmq)}
FAMILIES = [OwnOnPostgres.family, *PACKAGES]


def main() -> None:
    """Measure, print each round, and write the tables and the picture."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda number, frame: sys.exit(128 + number))
    options = _options()
    if options.install:
        servers, clients = ([those[name] for name in options.only if name in those] for those in (PACKAGES, CLIENTS))
        for words in (*install(servers), *install_for_python(clients)):
            print(words, file=sys.stderr)
    task = Task(options.events, options.size, options.singles)
    facts = {
        "events": f"{task.events:,}",
        "bytes": task.size,
        "rounds": options.rounds,
        "single events": task.singles,
        **{name: value for name, value in machine().items() if name in ("system", "cores", "python", "sqlite")},
    }
    rows = measure(contestants(options.only), task, options.rounds)
    text = markdown(rows, facts)
    print(text)
    if options.out:
        options.out.write_text(text)
        if rows[0].rounds and any(row.rounds for row in rows[1:]):
            options.out.with_suffix(".svg").write_text(picture(rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rivals", description="Measure the rivals beside us.")
    parser.add_argument("--install", action="store_true", help="install what is missing, with apt-get and pip")
    parser.add_argument("--events", type=read_count, default=100_000)
    parser.add_argument("--size", type=read_count, default=348, help="bytes of an event, as it is stored")
    parser.add_argument("--singles", type=read_count, default=500, help="events that are sent one at a time")
    parser.add_argument("--rounds", type=read_count, default=3)
    parser.add_argument(
        "--only", type=names_of("contestant", FAMILIES), default=FAMILIES, help=f"of {','.join(FAMILIES)}"
    )
    parser.add_argument("--out", type=Path, help="a file for the tables; a picture goes beside it, as .svg")
    options = parser.parse_args()
    if options.out and not options.out.absolute().parent.is_dir():
        parser.error(f"--out {options.out}: there is not a folder {options.out.parent}")
    return options


def contestants(families: Sequence[str]) -> list[Contestant]:
    """Return this project's contestants first, then those of these families."""
    others: list[Contestant] = [
        OwnOnPostgres(),
        *(nats.Nats(kind, sync) for sync in ("", "always") for kind in ("mirror", "source")),
        redis.Redis("everysec"),
        redis.Redis("always"),
        mosquitto.Mosquitto(),
        rabbitmq.RabbitMQ(),
    ]
    return [Own(), *(one for one in others if one.family in families)]


def measure(those: Sequence[Contestant], task: Task, rounds: int) -> list[Row]:
    """Measure round after round over all contestants. One that fails is not measured again, and its row shows why."""
    rows = [Row(one.name, durability=one.durability, settings=one.settings) for one in those]
    for one, row in zip(those, rows, strict=True):
        try:
            row.version = one.version()
        except NotMeasured as error:
            row.missing = str(error)
        try:
            row.client = one.client_version()
        except NotMeasured as error:
            row.client_missing = str(error)
    for number in range(1, rounds + 1):
        for one, row in zip(those, rows, strict=True):
            if row.missing:
                continue
            try:
                row.rounds.append(_one(one, task))
                shown = {name: round(value, 2) for name, value in row.rounds[-1].items()}
                print(json.dumps({"round": number, "of": one.name, **shown}), flush=True)
            except (NotMeasured, ServerFailed, EventdError, OSError) as error:
                row.missing, row.rounds = str(error), []
                print(json.dumps({"round": number, "of": one.name, "failed": row.missing}), flush=True)
    return rows


def _one(one: Contestant, task: Task) -> Figures:
    """Run one round of one contestant, with the disk and the load just before it."""
    with tempfile.TemporaryDirectory(prefix="eventd-rivals-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        around = {"fsync": fsync_ms(folder), "load": os.getloadavg()[0]}
        return {**one.measure(folder, task), **around}


if __name__ == "__main__":
    main()
