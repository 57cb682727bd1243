"""The guides on topics, streams and git, followed literally: the output of each command is what the page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.ports import free_port, free_ports
from tests.support.source import ROOT
from tests.support.terminals import Terminal, make_commands

GUIDES = ("gitops", "multi-master", "publish-and-subscribe", "publish-and-subscribe-over-quic", "stream-tokens")
BLOCK = re.compile(r"```(sh|text)\n(.*?)```", re.DOTALL)
TERMINALS = re.compile(r"# terminals? ([\d ]+)\n")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Step(NamedTuple):
    """A block to type, into which terminals, and the output that the page shows for the first of them; None: none."""

    terminals: str
    block: str
    shown: str | None


def steps(page: str) -> Iterator[Step]:
    """Yield the steps of a page."""
    blocks = BLOCK.findall(page)
    for (kind, text), (after, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "sh":
            where = TERMINALS.match(text)
            yield Step(where[1].replace(" ", "") if where else "0", text, shown if after == "text" else None)


def with_free_ports(page: str) -> str:
    """Return the page with ports that are free on this machine."""
    for port in ("8790", "8791"):
        page = page.replace(port, str(free_port()))
    for several in ("880", "879"):  # and the pid of the node
        page = re.sub(rf"\b{several}(?=\$)", str(free_ports(1, 2, 3)), page)
    return page


def masked(text: str) -> str:
    """Replace the times, and the widths of columns, which depend on what a watch knows when it prints its first row."""
    return re.sub(" {2,}", "  ", TIME.sub("TIME", text))


def as_pattern(shown: str) -> str:
    """Return a pattern for the output on the page, in which each `…` matches anything."""
    return ".*".join(re.escape(part) for part in masked(shown).split("…"))


def judge(step: Step, told: str) -> None:
    """Check a terminal's output against the page; if the page shows none, only that no command failed."""
    assert "failed:" not in told, f"{step.block}\n{told}"
    if step.shown is None:
        assert "error:" not in told, f"{step.block}\n{told}"
        return
    assert re.fullmatch(as_pattern(step.shown), masked(told)), f"{step.block}\nthe page: {step.shown}\nis: {told}"


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[dict[str, Terminal]]:
    path = make_commands(tmp_path / "bin")
    opened = {name: Terminal(name, tmp_path, {"PATH": path}) for name in "0123"}
    try:
        yield opened
    finally:
        for terminal in opened.values():
            terminal.close()


def typed(step: Step, terminals: Sequence[Terminal]) -> list[str]:
    """Type a step into its terminals at once; blocks of several terminals one after the other, as people do."""
    if "topic write" in step.block:
        return [terminal.run(step.block) for terminal in terminals]
    for terminal in terminals:
        terminal.type(step.block)
    return [terminal.wait() for terminal in terminals]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("guide", GUIDES)
def test_the_page_works_as_it_is_written(guide: str, terminals: dict[str, Terminal]) -> None:
    page = (ROOT / "docs" / "how-to" / f"{guide}.md").read_text()
    followed = [*steps(with_free_ports(page))]
    assert len(followed) == page.count("```sh")
    for step in followed:
        told = typed(step, [terminals[name] for name in step.terminals])
        judge(step, told[0])
        for beside in told[1:]:
            assert "failed:" not in beside, f"{step.block}\n{beside}"
    for terminal in terminals.values():
        assert terminal.run("jobs -r") == "", "nothing is left running"
