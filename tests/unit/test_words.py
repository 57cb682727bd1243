"""Phrases that readers stumble over stay out of pages, messages, docstrings and comments; each rule has its reason."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.support.source import ROOT, read_sources


class Rule(NamedTuple):
    """A phrase that is not written, and what to write instead."""

    pattern: str
    reason: str


RULES = (
    Rule(r"\b(whoever|nobody|somebody|anybody|everybody)\b", "name who acts: the node, the peer, the client, a reader"),
    Rule(r"\bthose who\b|\bwho (has|have|asks|wants|waits|catches)\b", "name who acts, in the singular"),
    Rule(r"\b(is|are|was|were|be|been|being) told\b", "write: is notified, is reported, gets"),
    Rule(r"\b(go|goes|going|went) on\b", "write: continue"),
    Rule(r"\bby then\b|\bcomes? to (?!the\b|an?\b|each\b)", "write the verb that says what happens"),
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
"""What programs read and print keeps its words."""


def pages() -> Iterator[tuple[str, str]]:
    """Each page without its code, which is blank, so that lines keep their numbers."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]:
        yield (
            str(page.relative_to(ROOT)),
            CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), page.read_text()),
        )


def of_code() -> Iterator[tuple[str, str]]:
    """The docstrings, comments and messages of each module, on their lines. Texts without a blank are for programs."""
    for source in read_sources():
        lines = [""] * (source.text.count("\n") + 2)
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            if token.type in (tokenize.STRING, tokenize.COMMENT) and " " in token.string:
                for number, line in enumerate(token.string.split("\n"), token.start[0]):
                    lines[number] += f" {line}"
        yield str(source.path), "\n".join(lines[1:])


def broken(rule: Rule, texts: Iterator[tuple[str, str]]) -> list[str]:
    """Where the phrase stands, also over the end of a line."""
    phrase = re.compile(rule.pattern.replace(" ", r"\s+"), re.IGNORECASE)
    return [
        f"{place}:{text.count(chr(10), 0, found.start()) + 1}: {' '.join(found[0].split())}"
        for place, text in texts
        for found in phrase.finditer(text)
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.reason)
def test_no_text_breaks_the_rule(rule: Rule) -> None:
    found = [*broken(rule, pages()), *broken(rule, of_code())]
    assert not found, "\n".join([rule.reason, *found])


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("write: continue", "The others\ngo on."),
        ("write: exits with status 4", "It ends with 4."),
        ("a group carries events", "A fact is stored."),
    ],
)
def test_a_broken_rule_is_found(reason: str, text: str) -> None:
    assert [rule.reason for rule in RULES if broken(rule, iter([("page", text)]))] == [reason]


def test_code_keeps_its_words() -> None:
    assert CODE.sub("", "`parked`\n\n    go on\n\n```\nnobody\n```\n").split() == []
