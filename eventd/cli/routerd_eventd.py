"""`routerd-eventd`: runs a node, migrates its database, checks its settings and database."""

from __future__ import annotations

import sys

from eventd.cli.program.collector import tune_collector
from eventd.cli.program.interrupt import end_quietly_on_interrupt
from eventd.settings.environment import skip_plugins


def main() -> None:
    """Run `routerd-eventd` with the arguments of this process, and exit."""
    end_quietly_on_interrupt()
    tune_collector()
    skip_plugins()
    if sys.argv[1:2] == ["probe"]:
        _probe(sys.argv[2:])
    from eventd.cli.program.exits import run
    from eventd.cli.routerd_eventd_commands import app

    run(app, "routerd-eventd", needs_output=False)


def _probe(words: list[str]) -> None:
    """Run `probe` and exit, without loading the other commands.

    Return if only the full command line can parse the arguments.
    """
    from eventd.cli.daemon.probe import ProbeFailed, read_words, run_probe

    probe = read_words(words)
    if probe is None:
        return
    try:
        print(run_probe(probe))
    except ProbeFailed as error:
        sys.exit(f"error: {error}")  # status 1
    sys.exit(0)


if __name__ == "__main__":
    main()
