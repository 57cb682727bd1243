"""Takes pictures of all pages of the console, in light and dark colours and windows of several widths.

    python -m tests.support.console_pictures FOLDER [empty] [full] [broken] [--width 320 …]

A picture is named WORLD-PAGE-WIDTH-COLOURS.png.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from tests.support.browser import WIDTHS, Visitors, running_browser
from tests.support.console import ConsoleNode, find_pages, sign_in
from tests.support.console_worlds import make_broken, make_empty, make_full
from tests.support.processes import Processes

WORLDS = {"empty": make_empty, "full": make_full, "broken": make_broken}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("worlds", nargs="*", choices=list(WORLDS), metavar="WORLD", help=", ".join(WORLDS))
    parser.add_argument("--width", type=int, nargs="*", default=list(WIDTHS))
    chosen = parser.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, running_browser() as browser:
        processes = Processes(Path(scratch))
        visitors = Visitors(browser)
        try:
            for world in chosen.worlds or WORLDS:
                photograph(visitors, WORLDS[world](processes), world, chosen.folder, chosen.width)
            visitors.close()
        finally:
            processes.close()


def photograph(visitors: Visitors, node: ConsoleNode, world: str, folder: Path, widths: list[int]) -> None:
    """Photograph all pages of a node."""
    visitor = visitors()
    visitor.page.goto(node.url())
    visitor.page.screenshot(path=folder / f"{world}-sign-in.png", full_page=True)
    sign_in(visitor, node)
    for path in find_pages(visitor, node):
        visitor.page.goto(node.url(path))
        name = re.sub(r"[^a-z]+", "-", path.partition("?")[0].strip("/"))[:40] or "overview"
        for width in widths:
            visitor.page.set_viewport_size({"width": width, "height": 900})
            for colours in ("light", "dark"):
                visitor.page.emulate_media(color_scheme=colours)
                visitor.page.screenshot(path=folder / f"{world}-{name}-{width}-{colours}.png", full_page=True)


if __name__ == "__main__":
    main(sys.argv[1:])
