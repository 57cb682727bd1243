"""Text from other nodes cannot control the terminal, in whatever form it is shown."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import yaml

from eventd.cli.program import exits
from eventd.cli.terminal.output import Column, Format, Output, note, text
from eventd.errors import Invalid

EVIL = "a\x1b]0;t\x07b\x9b31mc\u202ed\u2066e\u200bf\u2028g\x7f"
UNSEEN = set(EVIL) - set("abcdefg]0;t31m")


def shown(format: Format, value: dict[str, Any]) -> str:
    stream = io.StringIO()
    out = Output(format, headers=True, colour=False, stream=stream)
    out.rows([Column("ID", text("id"))], [value], name=lambda row: str(row["id"]))
    out.one([Column("ID", text("id"))], value, name=lambda row: str(row["id"]))
    out.stream_rows([Column("ID", text("id"))], name=lambda row: str(row["id"]))([value])
    out.line(value["id"])
    return stream.getvalue()


@pytest.mark.parametrize("format", ["table", "wide", "json", "yaml", "name"])
def test_an_id_steers_no_terminal(format: Format) -> None:
    found = shown(format, {"id": EVIL, EVIL: 1})
    assert not UNSEEN & set(found), ascii(found)
    assert "b" in found


def test_json_and_yaml_mean_what_they_did() -> None:
    value = {"id": EVIL, EVIL: ["é", EVIL, "日本 \xa0"]}
    for format, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        stream = io.StringIO()
        Output(format, headers=True, colour=False, stream=stream).value(value)  # type: ignore[arg-type]
        assert read(stream.getvalue()) == value
        assert "é" in stream.getvalue()


def test_an_error_or_a_note_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    exits.report(Invalid(f"no event {EVIL}\n  second line", hint=EVIL))
    note(EVIL)
    told = capsys.readouterr().err
    assert not UNSEEN & set(told), ascii(told)
    assert "\n  second line\n" in told
