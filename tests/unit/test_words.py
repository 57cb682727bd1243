"""Phrases that readers stumble over stay out of pages, messages, docstrings and comments; each rule has its reason."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
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


@cache
def pages() -> list[tuple[str, str]]:
    """Each page without its code, which is blank, so that lines keep their numbers."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    return [
        (str(file.relative_to(ROOT)), CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), file.read_text()))
        for file in files
    ]


@cache
def of_code() -> list[tuple[str, str]]:
    """Each docstring, message and comment of the modules that may break a rule, with its place. Texts without a blank
    are for programs."""
    return [
        (f"{source.path}:{line}", text)
        for source in read_sources()
        if may_break(source.text)
        for line, text in [*written(source.tree), *comments(source.text)]
        if " " in text
    ]


LOOSE = [re.compile(rule.pattern.replace(" ", r"(?:[\W_fFrR]|\{[^{}]*\})+"), re.IGNORECASE) for rule in RULES]
"""The phrases as they may stand in code, interrupted by the ends of strings, signs of comments, and values."""


def may_break(module: str) -> bool:
    """Whether a phrase may be in a module: most hold none, and to parse them takes the longest."""
    plain = re.sub(r"\\[a-z]", "  ", module)
    return any(phrase.search(plain) for phrase in LOOSE)


def written(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings of a module; a value in an f-string is a blank."""
    inside = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else " " for part in node.values]
            yield node.lineno, "".join(map(str, parts))
            inside |= {id(part) for part in ast.walk(node)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def comments(text: str) -> Iterator[tuple[int, str]]:
    """The comments of a module; lines that follow each other are one."""
    begin, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != begin + len(lines):
                yield begin, "\n".join(lines)
                begin, lines = token.start[0], []
            lines.append(token.string.lstrip("#"))
    yield begin, "\n".join(lines)


def broken(rule: Rule, texts: Iterable[tuple[str, str]]) -> list[str]:
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


BREAKING = (
    "Nobody reads it.",
    "For those who ask.",
    "The peer is told.",
    "The others\ngo on.",
    "It is there by then.",
    "It shows what there is.",
    "It ends with 4.",
    "It is foretold.",
    "Mend the link.",
    "The event is parked.",
    "The part is set aside.",
    "It is in the books.",
    "A fact is stored.",
)


@pytest.mark.parametrize(("rule", "text"), [*zip(RULES, BREAKING, strict=True)])
def test_a_broken_rule_is_found(rule: Rule, text: str) -> None:
    assert [each for each in RULES if broken(each, [("page", text)])] == [rule]


def test_a_phrase_is_found_over_two_lines_of_a_comment_and_in_joined_strings() -> None:
    module = "# the others go\n# on, and\nx = 1\ny = f'{x} is ' 'told'\n"
    assert may_break(module)
    found = [text for _, text in [*written(ast.parse(module)), *comments(module)]]
    assert [rule.pattern for rule in RULES if broken(rule, [("m", text) for text in found])] == [
        RULES[2].pattern,
        RULES[3].pattern,
    ]


@pytest.mark.parametrize(
    "module",
    ["# others go\n# on", "x = f'is ' f'told'", "x = f'is {value} told'", "x = 'it is\\n\\ttold'", "x = 'a\\nfact'"],
)
def test_a_module_with_a_phrase_is_looked_at(module: str) -> None:
    assert may_break(module)
    assert not may_break(module.replace("on", "").replace("told", "").replace("fact", ""))


def test_code_keeps_its_words() -> None:
    assert CODE.sub("", "`parked`\n\n    go on\n\n```\nnobody\n```\n").split() == []
