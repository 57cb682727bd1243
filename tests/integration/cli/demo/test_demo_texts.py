"""What the demo prints where there is no terminal, and at its end."""

from __future__ import annotations

import io

from rich.console import Console

from eventd.cli.demo.demo import Demo
from eventd.cli.demo.picture import WIDTH, Narrator, Picture


async def test_without_a_terminal_it_prints_no_picture_and_at_the_end_how_to_continue() -> None:
    shown = io.StringIO()
    narrator = Narrator(Console(file=shown, highlight=False, width=WIDTH))
    demo = Demo(narrator)
    async with demo.stage:
        with narrator.live(Picture(demo.stage.nodes)):
            assert not narrator.refresh()
            assert shown.getvalue() == ""
    assert not demo.stage.folder.exists()
    demo.say_goodbye()
    assert "demo --keep" in shown.getvalue()
    assert "routerctl" in shown.getvalue()
    assert "\x1b" not in shown.getvalue()
