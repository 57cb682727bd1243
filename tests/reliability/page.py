"""Builds the page from the kept figures. A part without figures says so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.reliability import parts
from tests.reliability.guarantees import GUARANTEES, Guarantee
from tests.reliability.occasions import checked_in
from tests.support.source import ROOT

PAGE: Final = ROOT / "docs/operations/reliability.md"
KEPT: Final = Path(__file__).with_name("kept")
FUZZ: Final = ROOT / "tests/fuzz/results.json"

Kept = Mapping[str, Any]
"""The kept figures by the name of their file, without its ending."""

_BEGIN: Final = """\
# Reliability

What is done to find out whether the [guarantees](../../README.md#what-it-guarantees) hold and, where figures of a run
are kept, how often and with which result; a part without kept figures says so. `python -m tests.reliability` writes
this page from the figures of the last kept runs, in `tests/reliability/kept`; a test compares them.

Nothing here is a proof. Runs without a violation bound the chance of one, for the faults that they have and on the
machine that they ran on; [what is not covered](#what-is-not-covered) is as much a part of the result."""

_END: Final = """\
## What is not covered

- **Whether a disk obeys.** The simulated disk, and the system calls that a test reads, show that a node asks for a
  flush before it answers. A disk or a hypervisor that acknowledges a flush and loses it is outside the reach of a test.
- **Faults of memory and of the processor**, and defects of Python, SQLite, Postgres and other libraries, beyond what
  the runs above met.
- **A Postgres server that crashes in the simulation.** The simulated nodes of the figures above run on SQLite. With
  `--postgres` they run on a real server, whose sessions and statements fail, but which loses nothing. Its crashes are
  tested with real servers: kills, fault injection and the contract tests of the log, which run on both databases.
- **Several processes of a node in the simulation.** Workers and standbys are tested with real processes, and two
  instances with a model.
- **TLS, name resolution and QUIC in the simulation.** Tests with real sockets cover them.
- **Members that hold a key and lie.** Their effects are limited and tested one by one. No plan has such a node; only
  the searches for two seeded bugs have one.
- **Longer times.** A simulated run lasts seconds to minutes of virtual time, and a soak as long as its table says.
- **Losses, and ways to correct them, in the simulation.** The dead letters of its links have one reason alone, an id
  that another event has, and no topic but that of the group has limits; models and tests with real nodes have the
  others. A run with restores has neither retention nor repairs nor ids used twice, and one with retention has no ids
  used twice.
- **Combinations that no seed has drawn.** The simulation has not tested a rare branch whose count is 0."""


def read_kept(folder: Path = KEPT) -> Kept:
    """Return all kept figures, and those of the fuzzer, which keeps them with its corpora."""
    found = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}
    return {**found, "fuzz": json.loads(FUZZ.read_text())}


def build_page(kept: Kept) -> str:
    """Return the text of the page."""
    chapters = (
        ("What shows each guarantee", _guarantees(kept)),
        ("Simulation", parts.simulation(kept.get("simulation"), kept.get("simulation_postgres"))),
        ("Models", parts.models(kept.get("models"))),
        ("Fuzzing", parts.fuzzing(kept["fuzz"])),
        ("Fault injection with real processes", parts.chaos(kept.get("chaos"), kept.get("restores"))),
        ("Soak", parts.soak(kept.get("soak"))),
        ("Seeded bugs", parts.seeded_bugs(kept.get("seeded_bugs"))),
        ("Mutants", parts.mutants(kept.get("mutants"))),
        ("Violations found so far", parts.violations(kept.get("violations", []))),
    )
    texts = [_BEGIN]
    for title, lines in chapters:
        texts += [f"## {title}", "\n".join(lines)]
    return "\n\n".join([*texts, _END]) + "\n"


def _guarantees(kept: Kept) -> Iterator[str]:
    yield (
        "The names of invariants are explained in [Simulation](simulation.md#what-is-checked), further ones with the"
        " [seeded bugs](#seeded-bugs)."
    )
    for guarantee in GUARANTEES:
        yield f"\n### {guarantee.title}\n"
        yield from _shown_by(guarantee, kept)


def _shown_by(guarantee: Guarantee, kept: Kept) -> Iterator[str]:
    simulation = kept.get("simulation")
    checked = [name for name in guarantee.invariants if name in parts.SIMULATED]
    if simulation and checked:
        yield f"- [Simulation](#simulation): {checked_in(checked, simulation['result'])}."
    if guarantee.models:
        yield f"- [Models](#models): {', '.join(guarantee.models)}."
    bugs = [bug for bug in kept.get("seeded_bugs", {}).get("bugs", []) if bug["number"] in guarantee.bugs]
    for words, its in (
        ("that break it and are found in the product", filter(parts.is_found_in_product, bugs)),
        ("that are found in a model only", filter(parts.is_found_in_model_only, bugs)),
    ):
        if numbers := ", ".join(str(bug["number"]) for bug in its):
            yield f"- [Seeded bugs](#seeded-bugs) {words}: {numbers}."
    if not (guarantee.invariants or guarantee.models or guarantee.bugs):
        yield "- No check of the simulation, no model and no seeded bug is about it."
    yield f"- Tests: {', '.join(f'`{path}`' for path in guarantee.tests)}."
