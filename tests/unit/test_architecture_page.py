"""The page on the architecture names every room and only files that exist."""

from __future__ import annotations

import re

import federation
from tests.support.architecture import ROOMS
from tests.support.source import ROOT

CONCEPTS = ROOT / "docs" / "concepts"
PAGE = (CONCEPTS / "architecture.md").read_text()
MAP = (CONCEPTS / "architecture.svg").read_text()


def test_the_page_lists_every_room_with_its_purpose() -> None:
    lines = [f"| `eventd/{name.replace('.', '/')}` | {room.purpose} |" for name, room in ROOMS.items()]
    lines.append(f"| `federation` | {(federation.__doc__ or '').splitlines()[0]} |")
    table = "\n".join(["| Room | What it is for |", "|---|---|", *lines, ""])
    assert PAGE.endswith(f"## The rooms\n\n{table}"), f"the table of rooms should read\n\n{table}"


def test_the_map_names_every_room() -> None:
    words = set(re.findall(r"[a-z]+", " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", MAP))))
    missing = [name for name in ROOMS if name.rpartition(".")[2] not in words]
    assert missing == [], "draw the room into docs/concepts/architecture.svg"


def test_every_file_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:eventd|federation|docs|migrations|tests)/[^`]+)`", PAGE)
    assert [name for name in named if not (ROOT / name).exists()] == []
