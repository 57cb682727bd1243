"""Run pytest; where very few of thousands of tests fail, look at those again, alone.

Hundreds of programs run beside each other in the suite, on machines that others use as well. A test that fails there
and passes twice by itself is unsteady: it is named at the end, so that it is mended, and does not hold up what has
nothing to do with it. One that fails again has failed.

    python -m tests.support.second_look PYTEST-ARGUMENT …
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST = 3
"""Failed tests that are looked at again. More of them have a common cause."""
TIMES = 2
_SOME_FAILED = 1
_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def run(arguments: Sequence[str]) -> int:
    """The exit status of pytest with these arguments, in a process of its own."""
    return subprocess.call([sys.executable, "-m", "pytest", *arguments])


def main(arguments: Sequence[str], first: Path = _FAILED) -> int:
    """The exit status of it all."""
    first.unlink(missing_ok=True)
    status = run(arguments)
    if status != _SOME_FAILED or not first.exists():
        return status
    failed = [*json.loads(first.read_text(encoding="utf-8"))]
    if not 0 < len(failed) <= MOST:
        return status
    for _ in range(TIMES):
        if status := run(["--quiet", "--numprocesses", "0", "--cache-clear", *failed]):
            return status
    sys.stdout.write(f"\nUNSTEADY: failed beside other tests, passed {TIMES} times alone; to be mended:\n")
    sys.stdout.writelines(f"  {test}\n" for test in failed)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
