"""The guide to the audit, followed literally: its commands work, and the ledger data it shows matches."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from eventd.audit.engine import run
from eventd.cli.routerctl import main
from tests.support.local_spark import LocalSpark
from tests.support.source import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (ROOT / "docs" / "how-to" / "audit-a-federation.md").read_text()
BLOCK = re.compile(r"```(console|python|text)\n(.*?)```", re.DOTALL)
PROMPT = re.compile(r"^\$ ((?:.*\\\n)*.*)", re.MULTILINE)
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Status = Callable[[str], object]
FEWER = "1000 --span 3h"
"""The number of events, instead of the page's hundred thousand, and the time that they take, instead of a day."""


class Block(NamedTuple):
    """A block of the page, and its language."""

    kind: str
    text: str


BLOCKS = [Block(*found) for found in BLOCK.findall(PAGE.partition("## 5.")[0])]


def commands(block: Block) -> list[str]:
    """Return the commands of a block, a line each."""
    return [typed.replace("\\\n", " ") for typed in PROMPT.findall(block.text)]


def the(word: str) -> str:
    """Return the one command of the page that contains this word."""
    (command,) = (typed for block in BLOCKS if block.kind == "console" for typed in commands(block) if word in typed)
    return command


def printed(word: str) -> tuple[list[str], list[str]]:
    """Return the lines that the page shows below this command: those before and those after `…`."""
    (block,) = (one for one in BLOCKS if one.kind == "console" and any(word in typed for typed in commands(one)))
    shown = PROMPT.split(block.text)[2].strip("\n").splitlines()
    at = next(number for number, line in enumerate(shown) if line.strip() == "…")
    return shown[:at], shown[at + 1 :]


@pytest.fixture
def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Status:
    """Types a command of the page, on a stand-in of Spark, and returns its status."""

    def typed(command: str) -> object:
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "open_session", lambda *_, **__: nullcontext(LocalSpark()))
    monkeypatch.setattr(run, "quiet", nullcontext)
    return typed


def test_the_page_shows_what_its_ledgers_hold(
    tmp_path: Path, status: Status, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not status(the("generate"))
    capfd.readouterr()
    assert status(the("audit run")) == 4
    lines = [line.rstrip() for line in "".join(capfd.readouterr()).splitlines()]
    first, last = printed("audit run")
    assert first == lines[: len(first)]
    assert last == lines[-len(last) :]
    findings = json.loads((tmp_path / "truth.json").read_text())["findings"]
    (lost,) = (one for one in findings if one["kind"] == "missing")
    assert lost["ids"] == list(dict.fromkeys(ID.findall(PAGE)))
    numbers = f"seqs {lost['first']:,}-{lost['last']:,}"
    assert f"{lost['source']} → {lost['peer']}  {numbers} · 3 events" in PAGE
    assert all(f"|{lost['source']}|{seq}|" in PAGE for seq in range(lost["first"], lost["last"] + 1))


def test_the_notebook_of_the_page_shows_what_was_hidden(
    spark: SparkSession, tmp_path: Path, status: Status, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not status(the("generate").replace("100000", FEWER))
    assert status(the("audit run")) == 4
    assert "Found: 3 missing, 5 duplicate, 2 forged, 1 loop." in capfd.readouterr().out

    program = "\n".join(block.text for block in BLOCKS if block.kind == "python")
    # In the session of the tests, whose Spark began in another folder; files that a notebook leaves open are its own.
    (tmp_path / "notebook.py").write_text(program.replace('"LAKE"', f'"{tmp_path}/LAKE"'))
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        runpy.run_path(str(tmp_path / "notebook.py"))
    shown = capfd.readouterr().out
    assert shown.startswith("True\n"), "all that is hidden was found, and nothing else"
    truth = json.loads((tmp_path / "truth.json").read_text())["findings"]
    (source, peer), seqs = next(
        ((one["source"], one["peer"]), (one["first"], one["last"])) for one in truth if one["kind"] == "missing"
    )
    for seq in range(seqs[0], seqs[1] + 1):
        assert f"|{source}|{seq}" in shown.replace(" ", "")
    (row,) = re.findall(rf"^\|\s*{source}\|delivered\|(.*)\|$", shown, re.MULTILINE)
    assert {count.strip() for count in row.split("|")} == {"3"}
    assert f"|{peer}|" not in shown.replace(" ", "")
