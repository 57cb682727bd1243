"""Policies: the forms that are read, what a quorum needs, and each refusal with its line."""

from __future__ import annotations

import pytest

from federation.errors import MalformedHistory
from federation.history.notes import LOG_KEY, WITNESS_KEY, read_vkey
from federation.history.policy import read_policy
from tests.support import plain_history as plain

LOG = plain.vkey("eventd/g/a/k3v9x0q2m7p1a8zd", 1, b"l" * 32)
A, B, C = (plain.vkey(f"eventd/g/{name}/witness", 4, name.encode() * 32) for name in "abc")
WITNESSES = f"witness a {A}\nwitness b {B} https://b.example/\nwitness c {C}\n"


def test_keys_are_read_in_their_order_and_comments_are_ignored() -> None:
    policy = read_policy(f"# ours\n\nlog {LOG}\n  witness a {A}\nquorum none\n")
    assert policy.logs == (read_vkey(LOG, LOG_KEY),)
    assert policy.witnesses == {"a": read_vkey(A, WITNESS_KEY)}
    assert policy.holds([]), "no quorum is required"


@pytest.mark.parametrize(
    ("rule", "cosigned", "holds"),
    [
        ("quorum a", "a", True),
        ("quorum a", "bc", False),
        ("group g any a b\nquorum g", "b", True),
        ("group g any a b\nquorum g", "c", False),
        ("group g all a b\nquorum g", "a", False),
        ("group g all a b\nquorum g", "ab", True),
        ("group g 2 a b c\nquorum g", "ac", True),
        ("group g any a b\ngroup h all g c\nquorum h", "bc", True),
        ("group g any a b\ngroup h all g c\nquorum h", "ab", False),
    ],
)
def test_a_quorum_holds_with_enough_of_its_members(rule: str, cosigned: str, holds: bool) -> None:
    keys = [read_vkey({"a": A, "b": B, "c": C}[name], WITNESS_KEY) for name in cosigned]
    assert read_policy(f"{WITNESSES}{rule}\n").holds(keys) is holds


@pytest.mark.parametrize(
    "wrong",
    [
        "log",
        f"log {A}",
        f"log {LOG} https://a.example/ more",
        f"witness a {A}",
        f"witness none {LOG}",
        f"witness d {A}",
        "witness d nonsense",
        "group g 0 a",
        "group g 2 a",
        "group g 02 a b",
        "group g any a a",
        "group g any nobody",
        "group a any b",
        "group g",
        "quorum nobody",
        "quorum",
        "quorum none\nquorum none",
        "allow all",
    ],
)
def test_other_lines_are_refused(wrong: str) -> None:
    with pytest.raises(MalformedHistory):
        read_policy(f"{WITNESSES}{wrong}\nquorum none\n" if "quorum" not in wrong else f"{WITNESSES}{wrong}\n")


def test_a_policy_without_a_quorum_is_refused() -> None:
    with pytest.raises(MalformedHistory, match="no line quorum"):
        read_policy(f"log {LOG}\n")


def test_the_line_is_named() -> None:
    with pytest.raises(MalformedHistory, match="line 2 of the policy is 'allow all'"):
        read_policy("\nallow all\nquorum none\n")
