"""The parts of the page, each from the figures of one tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tests.reliability.occasions import UNITS

SIMULATED: Final = frozenset(
    f"V{number}" for number in (1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 31, 38)
)
"""The invariants that simulated runs check."""
_NONE: Final = "No figures are kept."
LEAST_RUNS: Final = 100
"""The number of runs from which on their chance of a violation is stated."""
_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

Figures = Mapping[str, Any]


def number(value: float) -> str:
    """Return a number as a reader expects it."""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(number(cell) if isinstance(cell, int | float) else str(cell) for cell in row)} |"


def by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the names with their counts, the highest first."""
    return sorted(counts.items(), key=lambda item: -item[1])


def ran(figures: Figures) -> str:
    """Return when and where figures were taken."""
    about: Figures = figures["run"]
    known = [about["date"], f"commit {about['commit']}", about["machine"]]
    return ", ".join([*known, f"Python {about['python']}", f"SQLite {about['sqlite']}"]) + "."


def simulation(found: Figures | None, on_postgres: Figures | None) -> Iterator[str]:
    """Yield what `routerd-eventd simulate` did, with nodes on SQLite and on Postgres."""
    yield "[Simulation](simulation.md) runs whole nodes on virtual time, with faults from a seed.\n"
    yield from (_NONE,) if found is None else _campaign(found)
    yield "\n### On a Postgres server\n"
    yield from (_NONE,) if on_postgres is None else _campaign(on_postgres)


def _campaign(found: Figures) -> Iterator[str]:
    result, origin = found["result"], found["origin"]
    failed = len({each["seed"] for each in result["violations"]})
    yield from table(
        ("What", "Number"),
        [
            ("runs", result["runs"]),
            ("of these too idle to count", result["idleRuns"]),
            ("runs with a violation", failed),
            ("acknowledged events", result["acknowledgedEvents"]),
            ("batches with a receipt", result["batches"]),
            ("kills", result["kills"]),
            ("power losses", result["powerLosses"]),
        ],
    )
    words = [f"Version {origin['version']}", f"commit {found['commit'][:9]}", *found["machines"], origin["python"]]
    words += [origin["store"]] if origin["store"] != "sqlite" else []
    words += [f"SQLite {origin['sqlite']}", f"{number(result['cpuMinutes'])} minutes of processor time"]
    seeds = ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in result["seeds"])
    yield f"\nSeeds {seeds}, campaign sum `{result['sum']}`. {', '.join(words)}.\n"
    if not failed and result["countedRuns"] >= LEAST_RUNS:
        yield (
            f"{number(result['countedRuns'])} runs that count, without a violation, leave a chance of one per run below"
            f" {_small(3 / result['countedRuns'])} at 95 %.\n"
        )
    yield (
        "A run has only some kinds of load and of faults. [Units](simulation.md#what-is-checked) of a load are what is"
        " planned and acknowledged one by one; reading pages, jobs, ids used twice and what operators do have none.\n"
    )
    units = [(UNITS.get(kind, kind), count) for kind, count in by_count(result["acknowledgedUnits"])]
    yield from table(("Load", "Acknowledged units"), units)
    yield ""
    yield from table(("Fault", "Times"), by_count(result["faults"]))
    yield ""
    met = result["faultPairs"]
    yield f"{sum(map(bool, met.values()))} of {len(met)} pairs of kinds of faults met within 5 seconds.\n"
    yield from table(("Rare branch", "Times taken"), by_count(result["branches"]))


def _small(chance: float) -> str:
    """Return a small number, rounded up to one digit, as a product with a power of ten."""
    digit, _, exponent = f"{chance:.0e}".partition("e")
    if float(f"{digit}e{exponent}") < chance:
        digit = str(int(digit) + 1)
    return f"{digit} × 10{str(int(exponent)).translate(_RAISED)}"


def models(found: Figures | None) -> Iterator[str]:
    """Yield what `make models` explored."""
    yield "[Models](models.md) of the protocols, in which every order of steps is tried.\n"
    if found is None:
        yield _NONE
        return
    yield (
        "`Whole` says whether every state that can be reached was seen; a search of a larger space ends at a number of"
        " states. Random walks are samples of models that are too large to be searched.\n"
    )
    rows = [
        (each["title"], each["states"], each["steps"], whole, each["broken"] or "none")
        for each, whole in [
            *((each, "yes" if each["whole"] else "no") for each in found["spaces"]),
            *((each, "a sample") for each in found["walks"]),
        ]
    ]
    yield from table(("Space", "States", "Steps", "Whole", "Broken invariant"), rows)
    caught = sum(each["caught"] for each in found["bugs"])
    yield f"\n{caught} of {len(found['bugs'])} seeded bugs of the models are found. {ran(found)}"
    if found.get("transcribed"):
        yield "\nThese figures were copied by hand from what the run printed, with its bounds of the large spaces."


def fuzzing(found: Mapping[str, Figures]) -> Iterator[str]:
    """Yield what the fuzzer has tried."""
    inputs, edges = (sum(each[what] for each in found.values()) for what in ("inputs", "edges"))
    yield (
        f"[Fuzzing](fuzzing.md) calls {len(found)} parsers with inputs that coverage guides. The kept figures are of"
        f" {number(inputs)} inputs. The edges of the code that they reached, counted for each parser on its own, are"
        f" {number(edges)} together: an edge that several parsers share is counted with each of them.\n"
    )
    yield from _fuzz_runs(found, inputs)
    findings = [(f"`{name}`", "; ".join(each["findings"])) for name, each in sorted(found.items()) if each["findings"]]
    yield from table(("Parser", "Found and fixed; each input is replayed with the tests"), findings)


def _fuzz_runs(found: Mapping[str, Figures], inputs: int) -> Iterator[str]:
    """Yield when and where the inputs were tried, as far as it is known."""
    known: dict[str, int] = {}
    for run in (run for each in found.values() for run in each.get("runs", [])):
        words = ran({"run": run})
        known[words] = known.get(words, 0) + run["inputs"]
    for words, count in known.items():
        yield f"- {number(count)} inputs: {words}"
    if unknown := inputs - sum(known.values()):
        yield f"- {number(unknown)} inputs: no date, commit or machine is recorded."
    yield ""


def chaos(found: Figures | None, restores: Figures | None) -> Iterator[str]:
    """Yield what real processes went through, and the combinations of restores that were tried."""
    yield "[Fault injection](chaos.md) runs meshes of real nodes with proxies between them, on SQLite and Postgres.\n"
    if found is None:
        yield _NONE
    else:
        yield from table(("What", "Number"), [*found["runs"].items(), *found["load"].items()])
        yield ""
        yield from table(("Fault", "Times"), by_count(found["faults"]))
        for kind, reason in sorted(found["skipped"].items()):
            yield f"\nSkipped: {kind}, because {reason}."
        yield f"\n{_violations(found)} {ran(found)}"
    if restores is not None:
        yield "\nRestores of sender, receiver or both, from copies of many moments:\n"
        yield from table(("Restores", "Number"), restores["restores"].items())
        yield f"\n{_violations(restores)} {ran(restores)}"


def _violations(found: Figures) -> str:
    count = len(found["violations"])
    return "No violation." if not count else f"**{count} runs with violations.**"


def soak(found: Figures | None) -> Iterator[str]:
    """Yield the slopes of a soak."""
    yield (
        "`make soak` runs real nodes at a fixed rate with a fault a minute. A slope is that of the second half (Theil"
        " and Sen), with its interval at 95 %: the interval of what grows for ever is above 0.\n"
    )
    if found is None:
        yield _NONE
        return
    rows = [
        (
            each["node"],
            each["figure"],
            each["begin"],
            each["end"],
            _signed(each["slope"]),
            _interval(each),
            each["verdict"],
        )
        for each in found["slopes"]
    ]
    head = ("Node", "Figure", "Begin", "After the end", "Slope per hour", "Interval", "Verdict")
    yield from table(head, rows)
    summary = f"{found['minutes']} minutes, {found['eventsPerSecond']} events/s, {number(found['faults'])} faults"
    yield f"\n{summary}, {number(found['acknowledged'])} events acknowledged. {ran(found)}"


def _interval(each: Figures) -> str:
    return f"{_signed(each['low'])} to {_signed(each['high'])}"


def _signed(value: float) -> str:
    return f"{value:+,.0f}" if abs(value) >= 10 else f"{value:+.2g}"


def seeded_bugs(found: Figures | None) -> Iterator[str]:
    """Yield which seeded bugs are found, and by what."""
    yield (
        "That the checks can fail: `make seeded-bugs` puts [each of these bugs](seeded-bugs.md) into the product, and"
        " looks whether it is found. A bug that is found in a model only is one of a model of the product, not of the"
        " product. `Runs` are those of the simulation until it was found: the median, if there were several searches. A"
        " search has at most 200 runs. These runs are not those of a campaign: they have emits, the kinds of load that"
        " `Searched with` names, and no others; the other words of the column say what a search needs besides the load."
        " None has restores, replayed requests, flipped bits or proxies. In a campaign, where a run has some kinds of"
        " all, a bug can take more runs.\n"
    )
    if found is None:
        yield _NONE
        return
    rows = [
        (
            each["number"],
            each["bug"],
            ", ".join(each["invariants"]),
            _found_by(each),
            "" if each["medianRuns"] is None else each["medianRuns"],
            each["searchedWith"],
        )
        for each in found["bugs"]
    ]
    yield from table(("#", "Bug", "Named by", "Found by", "Runs", "Searched with"), rows)
    product, model = (sum(map(kind, found["bugs"])) for kind in (is_found_in_product, is_found_in_model_only))
    yield f"\n{product} of {len(found['bugs'])} are found in the product, {model} in a model only.\n"
    runs: dict[str, list[str]] = {}
    for each in found["bugs"]:
        runs.setdefault(ran(each), []).append(str(each["number"]))
    for words, numbers in runs.items():
        yield f"- {', '.join(numbers)}: {words}"
    yield (
        "\nTests and models show more properties than the simulation: T1, only one step from a position of a cursor is"
        " stored; T2, an instance writes only while no other one serves; T3, a backup is whole; T4, a cursor moves back"
        " only by a rewind."
    )


def is_found_in_product(bug: Figures) -> bool:
    """Return whether a simulated run or a test has found the bug."""
    return bool({*bug["ways"]} - {"model"})


def is_found_in_model_only(bug: Figures) -> bool:
    """Return whether only a model of the product with the bug was tried, or found it."""
    return bug["ways"] == ["model"]


def _found_by(bug: Figures) -> str:
    if is_found_in_model_only(bug):
        return "model only"
    return ", ".join(bug["ways"]) or (f"stands: {bug['stands']}" if bug["stands"] else "not found")


def mutants(found: Figures | None) -> Iterator[str]:
    """Yield how many mutants the tests notice."""
    yield "`make mutants` changes the code in small ways, and runs the unit and contract tests of that code.\n"
    if found is None:
        yield _NONE
        return
    rows = [
        (f"`{each['folder']}`", each["mutants"], each["killed"], each["killedBySimulation"])
        for each in found["folders"]
    ]
    head = ("Code", "Mutants", "Noticed by tests", "Noticed by the simulation alone")
    yield from table(head, rows)
    yield f"\n{ran(found)}"


def violations(found: Sequence[Figures]) -> Iterator[str]:
    """Yield what was ever found, with the commit that fixed it."""
    yield "Found by simulation, models and fuzzing since they exist, each with the title of the commit that fixed it.\n"
    rows = [(each["foundBy"], each["where"], each["what"], each["fixedBy"]) for each in found]
    yield from table(("Found by", "Seed, plan, space or parser", "What", "Fixed by"), rows)
