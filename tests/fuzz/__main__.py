"""Fuzz parsers: `python -m tests.fuzz TARGET|all --inputs N`.

Exits with status 4 if an input failed. It prints the command that repeats such an input, and once the parser is right,
`--finding NAME` keeps the input in the corpus.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.campaign import FuzzRun, RunLimits, add_finding, failure_of, fuzz, keep, missing_fuzzer
from tests.fuzz.registry import TARGETS, find

FAILED = 4


def main() -> int:
    options = _options()
    if options.input:
        return _repeat(options.target, Path(options.input), options.finding)
    if missing := missing_fuzzer():
        print(missing, file=sys.stderr)
        return 2
    names = [*TARGETS] if options.target == "all" else [options.target]
    limits = RunLimits(options.inputs, options.seconds)
    status = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for run in pool.map(lambda name: fuzz(name, limits), names):
            size = f", corpus {keep(run)}" if options.keep and run.failure is None else ""
            print(f"{run.target}: {run.inputs} inputs, {run.edges} edges, {run.seconds:.0f} s{size}", flush=True)
            if run.failure is not None:
                _report(run)
                status = FAILED
    return status


def _report(run: FuzzRun) -> None:
    print(run.trace)
    print(f"repeat it with: python -m tests.fuzz {run.target} --input {run.failure}", flush=True)


def _repeat(name: str, file: Path, finding: str) -> int:
    data = file.read_bytes()
    error = failure_of(find(name), data)
    if error is not None:
        raise error
    print(f"{name}: the input of {len(data)} bytes is handled as promised")
    if finding:
        add_finding(name, data, finding)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", choices=["all", *TARGETS], metavar="TARGET", help=f"all, or {', '.join(TARGETS)}")
    parser.add_argument("--inputs", type=int, default=0, help="inputs of each target")
    parser.add_argument("--seconds", type=int, default=0, help="seconds of each target")
    parser.add_argument("--jobs", type=int, default=1, help="how many targets are fuzzed at the same time")
    parser.add_argument("--keep", action="store_true", help="add what is new to tests/fuzz: corpora and results.json")
    parser.add_argument("--input", metavar="FILE", help="check this input only, without atheris")
    parser.add_argument("--finding", default="", metavar="NAME", help="with --input: keep it under this name")
    options = parser.parse_args()
    if not (options.inputs or options.seconds or options.input):
        options.inputs = 100_000
    return options


if __name__ == "__main__":
    sys.exit(main())
