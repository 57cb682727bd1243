"""`routerd-eventd`: runs a node, migrates its database, checks its settings and database."""

from __future__ import annotations

from eventd.cli.program.interrupt import end_quietly_on_interrupt


def main() -> None:
    """Run `routerd-eventd` with the arguments of this process, and exit."""
    end_quietly_on_interrupt()
    from eventd.cli.program.exits import run
    from eventd.cli.routerd_eventd_commands import app

    run(app, "routerd-eventd", needs_output=False)


if __name__ == "__main__":
    main()
