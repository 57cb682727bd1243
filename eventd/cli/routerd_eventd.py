"""`routerd-eventd`: runs a node, brings its database up to date, checks both."""

from __future__ import annotations

from eventd.cli.program.interrupt import end_quietly_on_interrupt


def main() -> None:
    """Entry of the command."""
    end_quietly_on_interrupt()
    from eventd.cli.program.exits import run
    from eventd.cli.routerd_eventd_commands import app

    run(app, "routerd-eventd", needs_output=False)


if __name__ == "__main__":
    main()
