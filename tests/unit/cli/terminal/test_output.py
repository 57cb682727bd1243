"""Tables, JSON, YAML and names: what is shown, and that no output controls the terminal."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from typing import Any

import pytest
import yaml

from eventd.cli.terminal.output import (
    Column,
    Format,
    Output,
    RecordsFormat,
    joined,
    moment,
    show_moment,
    show_span,
    span,
    text,
)
from eventd.text.invisible import printable
from eventd.text.plural import counted

COLUMNS = (
    Column("NAME", text("name")),
    Column("STATE", text("state")),
    Column("AT", moment("at")),
    Column("MORE", text("more"), wide=True),
)
ROWS = [
    {"name": "a", "state": "running", "at": "2026-11-20T12:00:00.123456Z", "more": 0},
    {"name": "longer", "state": "", "at": None, "more": []},
]


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


def shown(format: Format = "table", *, headers: bool = True, colour: bool = True, terminal: bool = False) -> str:
    stream = Terminal() if terminal else io.StringIO()
    out = Output(format, headers=headers, colour=colour, stream=stream)
    out.rows(COLUMNS, ROWS, name=lambda row: str(row["name"]))
    return stream.getvalue()


def test_columns_are_aligned_with_a_gap_of_two_and_end_without_blanks() -> None:
    assert shown() == (
        "NAME    STATE    AT\n"  #
        "a       running  2026-11-20T12:00:00Z\n"
        "longer  -        -\n"
    )


def test_wide_shows_more_and_headers_can_be_left_out() -> None:
    assert shown("wide", headers=False) == (
        "a       running  2026-11-20T12:00:00Z  0\n"  #
        "longer  -        -                     -\n"
    )


def test_an_empty_table_has_its_header_and_an_empty_list_its_brackets() -> None:
    for format, expected in (("table", "NAME  STATE  AT\n"), ("json", "[]\n"), ("yaml", "[]\n"), ("name", "")):
        stream = io.StringIO()
        Output(format, headers=True, colour=False, stream=stream).rows(COLUMNS, [], name=str)  # type: ignore[arg-type]
        assert stream.getvalue() == expected


def test_styles_are_for_terminals_and_can_be_refused() -> None:
    styled = shown(terminal=True)
    assert "\x1b[1mNAME  \x1b[0m" in styled
    assert "\x1b[32mrunning\x1b[0m" in styled
    assert "\x1b" not in shown(terminal=True, colour=False)
    assert "\x1b" not in shown("json", terminal=True)


def test_names_are_one_a_line() -> None:
    assert shown("name") == "a\nlonger\n"


def test_json_keeps_letters_of_every_script_and_survives_surrogates() -> None:
    stream = io.StringIO()
    out = Output("json", headers=True, colour=False, stream=stream)
    out.one((), {"name": "zürich \ud800"}, name=str)
    assert stream.getvalue() == '{\n  "name": "zürich \\ud800"\n}\n'


def test_a_stream_that_cannot_hold_a_letter_gets_it_spelled_out() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Output("table", headers=True, colour=False, stream=stream).line("zürich")
    stream.flush()
    assert raw.getvalue() == b"z\\xfcrich\n"


def test_rows_that_keep_coming_keep_their_columns() -> None:
    stream = io.StringIO()
    show = Output("table", headers=True, colour=False, stream=stream).stream_rows(COLUMNS, name=str)
    for row in [*ROWS, ROWS[0]]:
        show([row])
    assert stream.getvalue().splitlines() == [
        "NAME  STATE    AT",
        "a     running  2026-11-20T12:00:00Z",
        "longer  -        -",
        "a       running  2026-11-20T12:00:00Z",
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("plain ü 漢字 🎉", "plain ü 漢字 🎉"),
        ("a\x1b[2J", "a\\x1b[2J"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202ex", "\\u202ex"),
    ],
)
def test_what_could_steer_a_terminal_is_spelled_out(given: str, expected: str) -> None:
    assert printable(given) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "-"), (0.0004, "0s"), (0.012, "12ms"), (0.9994, "999ms"), (1.9, "1s"), (1740, "29m0s"), (-5.5, "-5s")],
)
def test_durations_are_whole_seconds_or_milliseconds(seconds: float, expected: str) -> None:
    assert show_span(seconds) == expected
    assert span("lag")({"lag": seconds}) == expected


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (None, "-"),
        ("", "-"),
        ("0001-01-01T00:00:00Z", "-"),
        ("2026-11-20T12:00:00Z", "2026-11-20T12:00:00Z"),
        ("2026-11-20T12:00:00.999999Z", "2026-11-20T12:00:00Z"),
    ],
)
def test_times_are_cut_to_the_second(time: str | None, expected: str) -> None:
    assert show_moment(time) == expected


def test_lists_are_joined_and_numbers_counted() -> None:
    assert joined("on")({"on": ["a", 1]}) == "a,1"
    assert joined("on")({"on": []}) == "-"
    assert (counted(1, "event"), counted(0, "event"), counted(2, "line")) == ("1 event", "0 events", "2 lines")


def test_a_number_that_no_float_holds_is_shown_as_text() -> None:
    shown = io.StringIO()
    Output("json", headers=True, colour=False, stream=shown).stream_rows(COLUMNS, name=str)(
        [{"data": Decimal("1e400")}]
    )
    assert shown.getvalue() == '{"data": "1E+400"}\n'


def test_rows_that_keep_coming_are_documents_or_names() -> None:
    told = {}
    for format in ("json", "yaml", "name"):
        shown = io.StringIO()
        show = Output(format, headers=True, colour=False, stream=shown).stream_rows(
            COLUMNS, name=lambda row: row["name"]
        )  # type: ignore[arg-type]
        for name in ("a", "b"):
            show([{"name": name}])
        told[format] = shown.getvalue()
    assert told == {"json": '{"name": "a"}\n{"name": "b"}\n', "yaml": "---\nname: a\n---\nname: b\n", "name": "a\nb\n"}


@pytest.mark.parametrize("answer", [{"topic": "t"}, [{"topic": "t"}]], ids=["object", "list"])
@pytest.mark.parametrize(
    ("format", "printed"),
    [
        ("table", "topic/t deleted\nrouter/a\\x1bb deleted\n"),
        ("wide", "topic/t deleted\nrouter/a\\x1bb deleted\n"),
        ("name", "t\n"),
        ("json", None),
        ("yaml", None),
    ],
)
def test_an_outcome_is_lines_for_people_and_the_answer_for_programs(
    format: Format, printed: str | None, answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = io.StringIO()
    out = Output(format, headers=True, colour=False, stream=stream)
    lines = ("topic/t deleted", "router/a\x1bb deleted")
    out.outcome(answer, *lines, name=lambda row: str(row["topic"]), notes=["note: one stays"])
    if printed is None:
        assert yaml.safe_load(stream.getvalue()) == answer
    else:
        assert stream.getvalue() == printed
    assert capsys.readouterr().err == ("note: one stays\n" if format in ("table", "wide") else "")


RECORDS = [("a", 1, None, True, [1, None]), ('b, "c"\n', 2.5, "", False, {"at": "x"})]


def records(format: RecordsFormat, *, headers: bool = True) -> str:
    stream = io.StringIO()
    names = ("name", "number", "text", "flag", "inner")
    Output(format, headers=headers, colour=False, stream=stream).records(names, RECORDS)
    return stream.getvalue()


def test_records_are_a_table_whose_absent_values_are_dashes() -> None:
    assert records("table").splitlines() == [
        "name      number  text  flag   inner",
        "a         1       -     true   [1, null]",
        'b, "c"\\n  2.5           false  {"at": "x"}',
    ]


def test_records_are_csv_that_its_readers_take_apart_again() -> None:
    read = list(csv.reader(io.StringIO(records("csv"), newline="")))
    assert read == [
        ["name", "number", "text", "flag", "inner"],
        ["a", "1", "", "true", "[1, null]"],
        ['b, "c"\n', "2.5", "", "false", '{"at": "x"}'],
    ]
    assert list(csv.reader(io.StringIO(records("csv", headers=False), newline=""))) == read[1:]


def test_records_are_objects_for_programs() -> None:
    names = ("name", "number", "text", "flag", "inner")
    objects = [dict(zip(names, row, strict=True)) for row in RECORDS]
    assert json.loads(records("json")) == objects
    assert yaml.safe_load(records("yaml")) == objects


@pytest.mark.parametrize(("format", "shown"), [("table", ""), ("csv", ""), ("json", "[]\n"), ("yaml", "[]\n")])
def test_a_result_without_columns_is_nothing_or_an_empty_list(format: RecordsFormat, shown: str) -> None:
    stream = io.StringIO()
    Output(format, headers=True, colour=False, stream=stream).records((), [])
    assert stream.getvalue() == shown


def test_csv_controls_no_terminal_and_keeps_lines_and_tabs() -> None:
    stream = io.StringIO()
    cells = ["\x1b[31mred", "one\ntwo\tthree", "abc\u202ecba", "a\rb\x00", "=1+1"]
    Output("csv", headers=True, colour=False, stream=stream).records(["\x1b[2J"], [[cell] for cell in cells])
    assert stream.getvalue() == ('\\x1b[2J\n\\x1b[31mred\n"one\ntwo\tthree"\nabc\\u202ecba\na\\rb\\x00\n=1+1\n')
