"""Runs the fuzzer over a target: from its corpus and seeds, for some inputs or seconds, to a verdict and figures."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.fuzz.corpus import ROOT, CorpusInput, minimised, read_corpus, write_corpus
from tests.fuzz.registry import find
from tests.fuzz.target import LONGEST, FuzzTarget, replay
from tests.reliability.provenance import describe_run

BUILD: Final = ROOT / "build" / "fuzz"
RESULTS: Final = Path(__file__).parent / "results.json"
"""Inputs, edges and seconds of each target over all runs that were kept; pages read it.

`runs` has what is known of each run: those that were kept before the first of them have no date, commit and machine.
"""
_COVERED: Final = re.compile(r"cov: (\d+)")
_INPUTS: Final = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
_HANG_SECONDS: Final = 20
_MEMORY_MIB: Final = 2048


class RunLimits(NamedTuple):
    """When a run of one target ends: after `inputs` inputs or `seconds` seconds, 0 for no such limit."""

    inputs: int
    seconds: int


class FuzzRun(NamedTuple):
    """The end of a run. `edges` are those of the product's bytecode; `failure` is the file of an input that failed."""

    target: str
    inputs: int
    edges: int
    seconds: float
    failure: Path | None = None
    trace: str = ""


def missing_fuzzer() -> str:
    """Return what to do if atheris is not installed here; empty if it is."""
    if find_spec("atheris") is not None:
        return ""
    return "atheris is not installed here: run make fuzz, or make venv-fuzz and .venv-fuzz/bin/python -m tests.fuzz"


def fuzz(name: str, limits: RunLimits) -> FuzzRun:
    """Fuzz one target in a process of its own, and return how that ended."""
    folder = BUILD / name
    found = folder / "corpus"
    found.mkdir(parents=True, exist_ok=True)
    target = find(name)
    for data in {*(one.data for one in read_corpus(name)), *target.seeds()}:
        (found / hashlib.sha1(data).hexdigest()).write_bytes(data)
    words = folder / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
    options = [
        f"-artifact_prefix={folder}/",
        *([f"-dict={words}"] if target.words else []),
        f"-max_len={LONGEST}",
        f"-timeout={_HANG_SECONDS}",
        f"-rss_limit_mb={_MEMORY_MIB}",
        "-print_final_stats=1",
        *([f"-runs={limits.inputs}"] if limits.inputs else []),
        *([f"-max_total_time={limits.seconds}"] if limits.seconds else []),
    ]
    before, begin = {*folder.glob("*-*")}, time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.guided", name, *options, str(found)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    seconds = time.monotonic() - begin
    told = done.stdout + done.stderr
    (folder / "log").write_text(told)
    covered, counted = _COVERED.findall(told), _INPUTS.search(told)
    run = FuzzRun(name, int(counted[1]) if counted else 0, int(covered[-1]) if covered else 0, seconds)
    if done.returncode == 0:
        return run
    failures = sorted({*folder.glob("*-*")} - before)
    return run._replace(failure=failures[0] if failures else folder / "log", trace=_trace_of(told))


def _escaped(word: str) -> str:
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in word.encode())
    return "".join(plain)


def _trace_of(told: str) -> str:
    """Return the exception of a failure, from what the process printed."""
    begin = told.find("=== Uncaught Python exception: ===")
    return told[begin:].partition("\nINFO: ")[0] if begin >= 0 else told[-4000:]


def failure_of(target: FuzzTarget, data: bytes) -> Exception | None:
    """Return what a check of this input raises without the instruments of the fuzzer, which make it slower."""
    try:
        replay(target, [data])
    except Exception as error:
        return error
    return None


def keep(run: FuzzRun) -> int:
    """Add what a run found to the corpus and the results; return the size of the corpus."""
    target = find(run.target)
    inputs = [*read_corpus(run.target), *map(CorpusInput, {*target.seeds(), *_found(run.target)})]
    kept, _ = minimised(target, _distinct(inputs))
    write_corpus(run.target, kept)
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[run.target] = add_run(results.get(run.target), run, kept)
    RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
    return len(kept)


def add_run(old: Mapping[str, Any] | None, run: FuzzRun, kept: Sequence[CorpusInput]) -> dict[str, Any]:
    """Return the figures of a target with a run and its corpus."""
    old = old or {"inputs": 0, "seconds": 0, "edges": 0}
    return {
        "inputs": old["inputs"] + run.inputs,
        "edges": max(old["edges"], run.edges),
        "seconds": old["seconds"] + round(run.seconds),
        "corpus": len(kept),
        "findings": sorted(one.finding for one in kept if one.finding),
        "runs": [*old.get("runs", []), {**describe_run(), "inputs": run.inputs}],
    }


def _found(name: str) -> Iterator[bytes]:
    for file in (BUILD / name / "corpus").iterdir():
        yield file.read_bytes()


def _distinct(inputs: list[CorpusInput]) -> list[CorpusInput]:
    findings = {one.data for one in inputs if one.finding}
    return [one for one in inputs if one.finding or one.data not in findings]


def add_finding(name: str, data: bytes, finding: str) -> None:
    """Add an input to the corpus of a target, under the name of the defect that it found."""
    others = [one for one in read_corpus(name) if one.data != data]
    write_corpus(name, [*others, CorpusInput(data, finding)])
