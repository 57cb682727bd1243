"""The process that fuzzes one target with atheris: `python -m tests.fuzz.guided TARGET OPTION… FOLDER…`.

Options and folders are those of libFuzzer. The code of the product is instrumented as it is imported, so nothing may
import it before.
"""

from __future__ import annotations

import sys

import atheris

from tests.fuzz.registry import find
from tests.fuzz.target import within_limits


def main() -> None:
    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["eventd", "federation"]):
        target = find(name)
        for seed in target.seeds():  # imports what is imported late
            target.check(seed)

    def check(data: bytes) -> None:
        with within_limits(traced=False):
            target.check(data)

    atheris.Setup([sys.argv[0], *options], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
