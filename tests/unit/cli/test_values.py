"""Words of a command line: what is read without the library is what the library would have read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest
from typer._adapters import build_adapter
from typer.models import OptionInfo

from eventd.cli.program.values import _UNSURE, _plain


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


RANGED = OptionInfo(min=1, max=100)
FREE = OptionInfo()


@pytest.mark.parametrize(
    ("wanted", "info", "word"),
    [
        (str, FREE, ""),
        (str, FREE, " x\udce9"),
        (int, FREE, "0"),
        (int, FREE, "007"),
        (int, RANGED, "100"),
        (int, RANGED, 7),
        (Path, FREE, "/nowhere/at/all"),
        (Path, FREE, "-"),
        (Path, FREE, "~"),
        (Path, FREE, "/"),
        (Literal["table", "wide"], FREE, "wide"),
        (Colour, FREE, "red"),
        (list[str], FREE, ("a", "b")),
        (list[int], FREE, ("1", "2")),
        (list[Colour], FREE, ["green"]),
        (list[str], FREE, ()),
    ],
)
def test_what_is_plain_is_read_as_the_library_reads_it(wanted: Any, info: OptionInfo, word: Any) -> None:
    found = _plain(word, wanted, info)
    theirs = build_adapter(wanted, info).validate_python(word, context={})
    assert found == theirs
    assert type(found) is type(theirs)


@pytest.mark.parametrize(
    ("wanted", "info", "word"),
    [
        (int, FREE, "+5"),
        (int, FREE, "-5"),
        (int, FREE, " 5"),
        (int, FREE, "٥"),
        (int, FREE, ""),
        (int, FREE, "9" * 5000),
        (int, RANGED, "0"),
        (int, RANGED, "101"),
        (int, RANGED, 101.5),
        (float, FREE, "1.5"),
        (Literal["table", "wide"], FREE, "WIDE"),
        (Colour, FREE, "RED"),
        (list[int], FREE, ("1", "x")),
        (list[str], FREE, "ab"),
        (str, FREE, b"x"),
    ],
)
def test_what_is_not_is_left_to_the_library(wanted: Any, info: OptionInfo, word: Any) -> None:
    assert _plain(word, wanted, info) is _UNSURE


def test_a_file_that_cannot_be_read_is_left_to_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.cli.program.values.os.access", lambda *_: False)  # root may read anything
    assert _plain(str(tmp_path), Path, FREE) is _UNSURE
    assert _plain(str(tmp_path / "missing"), Path, FREE) == tmp_path / "missing"
