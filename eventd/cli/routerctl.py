"""`routerctl`: works on a node, through its database or its API."""

from __future__ import annotations

from eventd.cli.program.collector import tune_collector
from eventd.cli.program.interrupt import end_quietly_on_interrupt
from eventd.settings.environment import skip_plugins


def main() -> None:
    """Run `routerctl` with the arguments of this process, and exit."""
    end_quietly_on_interrupt()
    tune_collector()
    skip_plugins()
    from eventd.cli.program.exits import run
    from eventd.cli.routerctl_commands import app

    run(app, "routerctl")


if __name__ == "__main__":
    main()
