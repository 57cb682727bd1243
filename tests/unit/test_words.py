"""Phrases that readers stumble over stay out of pages and help texts; each rule has its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import typer.main

from eventd.cli import routerctl, routerd_eventd
from tests.support.source import ROOT


class Rule(NamedTuple):
    """A phrase that is not written, and what to write instead."""

    pattern: str
    reason: str


RULES = (
    Rule(r"\b(whoever|nobody|somebody|anybody|everybody)\b", "name who acts: the node, the peer, the client, a reader"),
    Rule(r"\bthose who\b|\bwho (has|have|asks|wants|waits|catches)\b", "name who acts"),
    Rule(r"\b(is|are|was|were|be|been|being) told\b", "write: is notified, is reported, gets"),
    Rule(r"\b(go|goes|going|went) on\b", "write: continue"),
    Rule(r"\bby then\b|\bcomes? to rest\b|\bcomes? to (?!the\b|an?\b|each\b)", "write the verb that says what happens"),
    Rule(r"\b(what|all) there is\b|\bwhat of\b|\bmakes? of it\b|\bin its place\b", "write the noun"),
    Rule(r"\b(ends?|ended|exits?) with (exit code )?[0-4]\b", "write: exits with status 4"),
    Rule(r"\bfore(tell|tells|told)\b", "write: predict"),
    Rule(r"\bmend(s|ed|ing)?\b", "write: fix"),
    Rule(r"\bparked?\b", "a record that a destination refused for good is a dead letter"),
    Rule(r"\bset(s|ting)? aside\b", "an event becomes a dead letter, a part is left out"),
    Rule(r"\b(the|its|our|both sides'|a node's) books\b", "what proves deliveries is the delivery ledger"),
    Rule(r"\bfacts?\b", "a group carries events"),
)

CODE = re.compile(r"```.*?```|^(?: {4}|\t).*?$|`[^`]*`", re.DOTALL | re.MULTILINE)
"""Code in a page: what programs print and read keeps its words."""


def blanked(page: str) -> str:
    """A page without its code, with every line where it was."""
    return CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), page)


def pages() -> Iterator[tuple[str, str]]:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]:
        yield str(page.relative_to(ROOT)), blanked(page.read_text())


def helps() -> Iterator[tuple[str, str]]:
    for name, app in (("routerctl", routerctl.app), ("routerd-eventd", routerd_eventd.app)):
        yield from _helps(typer.main.get_command(app), name)


def _helps(command: Any, path: str) -> Iterator[tuple[str, str]]:
    options = [param.help for param in command.params if getattr(param, "help", None)]
    yield f"{path} --help", "\n".join([command.help or "", *options])
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from _helps(inner, f"{path} {name}")


def broken(rule: Rule, texts: Iterator[tuple[str, str]]) -> list[str]:
    phrase = re.compile(re.sub(r"(?<!\\) ", r"\\s+", rule.pattern), re.IGNORECASE)
    return [
        f"{place}:{text.count(chr(10), 0, found.start()) + 1}: {' '.join(found[0].split())}"
        for place, text in texts
        for found in phrase.finditer(text)
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.reason)
def test_no_page_breaks_the_rule(rule: Rule) -> None:
    found = broken(rule, pages())
    assert not found, "\n".join([rule.reason, *found])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.reason)
def test_no_help_text_breaks_the_rule(rule: Rule) -> None:
    found = broken(rule, helps())
    assert not found, "\n".join([rule.reason, *found])
