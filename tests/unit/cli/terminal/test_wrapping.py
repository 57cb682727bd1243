"""Tables on a terminal: long cells are wrapped, and nothing else."""

from __future__ import annotations

import io
from typing import Any

import pytest

from eventd.cli.terminal.output import Column, Format, Output, text
from eventd.cli.terminal.wrapping import fit

COLUMNS = (Column("NAME", text("name")), Column("WHY", text("why"), wraps=True), Column("DO", text("do"), wraps=True))
ROWS: list[dict[str, Any]] = [
    {"name": "a", "why": "the peer is not reachable at all", "do": "run `routerctl --group lab links`"},
    {"name": "b", "why": "-", "do": ""},
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, columns: int, format: Format = "table", *, terminal: bool = True) -> str:
    monkeypatch.setenv("COLUMNS", f"{columns}")
    stream = Terminal() if terminal else io.StringIO()
    Output(format, headers=True, colour=False, stream=stream).rows(COLUMNS, ROWS, name=str)
    return stream.getvalue()


def test_on_a_terminal_long_cells_are_wrapped_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, 60) == (
        "NAME  WHY                         DO\n"
        "a     the peer is not reachable   run `routerctl --group lab\n"
        "      at all                      links`\n"
        "b     -                           -\n"
    )


@pytest.mark.parametrize(("columns", "format"), [(60, "table"), (200, "table"), (60, "wide")])
def test_output_knows_whether_it_has_wrapped_a_cell(
    monkeypatch: pytest.MonkeyPatch, columns: int, format: Format
) -> None:
    monkeypatch.setenv("COLUMNS", f"{columns}")
    out = Output(format, headers=True, colour=False, stream=Terminal())
    out.rows(COLUMNS, ROWS, name=str)
    assert out.has_wrapped == ((columns, format) == (60, "table"))


def test_a_table_that_fits_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, 200) == shown(monkeypatch, 60, terminal=False)


def test_output_for_a_pipe_and_wide_output_have_one_line_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(shown(monkeypatch, 60, terminal=False).splitlines()) == 3
    assert len(shown(monkeypatch, 60, "wide").splitlines()) == 3


@pytest.mark.parametrize(
    ("widths", "wraps", "room", "fitted"),
    [
        ([10, 30, 100], [False, True, True], 110, [10, 30, 70]),
        ([10, 80, 100], [False, True, True], 110, [10, 50, 50]),
        ([10, 30, 100], [False, True, True], 20, [10, 24, 24]),
        ([10, 5, 100], [False, True, True], 200, [10, 5, 100]),
    ],
)
def test_the_widest_columns_become_narrower(widths: list[int], wraps: list[bool], room: int, fitted: list[int]) -> None:
    assert fit(widths, wraps, room) == fitted
