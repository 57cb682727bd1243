"""Which events trigger a subscription, and which end its parts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from eventd.egress.subscriptions.trigger import DERIVED_BY, SubscriptionTrigger
from eventd.log.core.blocks import pack
from eventd.log.core.values import Drafts, Record
from eventd.testing import NOW, draft
from federation.selector import Selector

OBSERVED, EXPIRED = "client.observed", "client.expired"
MANY = [f"t.{number}" for number in range(20)]


def trigger(
    *types: str, payload: dict[str, str] | None = None, withdraws: bool = True, **more: Any
) -> SubscriptionTrigger:
    selector = Selector.of(types=types or [OBSERVED], **more)
    return SubscriptionTrigger(selector, tuple(sorted((payload or {}).items())), withdraws, "a/s")


def record(type: str = OBSERVED, *, position: int = 1, node: str = "a", **fields: Any) -> Record:
    made = draft("e1", type=type, node=node, **fields)
    return Record(
        position, 1, position, node, type, fields.get("subject", ""), "e1", NOW, made.expires_at, NOW, "", 1, made.body
    )


def taken(asked: SubscriptionTrigger, told: Record) -> str:
    """`r` where it runs, `e` where it ends, both, or nothing."""
    seen = asked.take(told)
    return "" if seen is None else "r" * seen.runs + "e" * seen.ends


@pytest.mark.parametrize(
    ("asked", "told", "what"),
    [
        (trigger(), record(), "r"),
        (trigger(), record(EXPIRED), "e"),
        (trigger(withdraws=False), record(EXPIRED), ""),
        (trigger(), record("other.expired"), ""),
        (trigger("client.*"), record(EXPIRED), "re"),
        (trigger("*"), record("other.thing"), "r"),
        (trigger("client.moved"), record(EXPIRED), ""),
        (trigger(subject_prefixes=["10."]), record(EXPIRED, subject="10.1"), "e"),
        (trigger(subject_prefixes=["10."]), record(EXPIRED, subject="11.1"), ""),
        (trigger(sources=["b"]), record(EXPIRED), ""),
        (trigger(payload={"k": "v"}), record(payload={"k": "v", "more": ""}), "r"),
        (trigger(payload={"k": "v"}), record(), ""),
        (trigger(payload={"k": ""}), record(), "r"),
        (trigger(payload={"k": ""}), record(payload={"k": ""}), "r"),
        (trigger(payload={"k": ""}), record(payload={"k": "v"}), ""),
        (trigger(payload={"k": "v"}), record(EXPIRED), "e"),
        (trigger(payload={"k": "v"}), record(EXPIRED, payload={"k": "w"}), ""),
        (trigger().at(NOW), record(expires=NOW - 1), ""),
        (trigger().at(NOW), record(expires=NOW + 1), "r"),
        (trigger().only([1]), record(), "r"),
        (trigger().only([2]), record(), ""),
        (trigger(), record(payload={DERIVED_BY: "b/x a/s"}), ""),
        (trigger(), record(payload={DERIVED_BY: "b/x a/st"}), "r"),
    ],
)
def test_what_it_takes(asked: SubscriptionTrigger, told: Record, what: str) -> None:
    assert taken(asked, told) == what


def test_what_was_covered_before_is_known_and_not_run() -> None:
    wider = replace(trigger(payload={}), without=trigger(payload={"k": "v"}))
    assert taken(wider, record()) == "r"
    seen = wider.take(record(payload={"k": "v"}))
    assert seen is not None
    assert (seen.runs, seen.ends) == (False, False)
    assert taken(wider, record(EXPIRED)) == "e", "what revokes counts for what is run late"


@pytest.mark.parametrize(
    ("now", "before", "wider"),
    [
        (trigger(), trigger(), False),
        (trigger("*"), trigger(), True),
        (trigger(), trigger("client.*"), False),
        (trigger(payload={"k": "v"}), trigger(), False),
        (trigger(), trigger(payload={"k": "v"}), True),
        (trigger(payload={"k": "w"}), trigger(payload={"k": "v"}), True),
        (trigger(), trigger(withdraws=False), True),
        (trigger(withdraws=False), trigger(), False),
    ],
)
def test_whether_it_asks_for_more(now: SubscriptionTrigger, before: SubscriptionTrigger, wider: bool) -> None:
    assert now.widens(before) is wider


def test_it_is_stored_and_read_back() -> None:

    whole = replace(
        trigger("b.*", "a", payload={"k": ""}, subject_prefixes=["x"], sources=["n"]).only([3, 1]), without=trigger()
    )
    assert SubscriptionTrigger.from_json(json.loads(json.dumps(whole.to_json()))) == whole


@pytest.mark.parametrize(
    ("asked", "types", "source", "out"),
    [
        (trigger(), [OBSERVED], "a", False),
        (trigger(), [EXPIRED], "a", False),
        (trigger(withdraws=False), [EXPIRED], "a", True),
        (trigger(), ["other"], "a", True),
        (trigger("client.*"), ["client.x.y"], "a", False),
        (trigger(), ["other"] * 3 + [OBSERVED], "a", False),
        (trigger(), [*MANY, OBSERVED], "a", False),  # too many types to name: its text is looked at
        (trigger(), [*MANY, EXPIRED], "a", False),
        (trigger(), MANY, "a", True),
        (trigger("t.*"), MANY, "a", False),
        (trigger("*"), MANY, "a", False),
        (trigger(sources=["b"]), [OBSERVED], "a", True),
        (trigger(sources=["a"]), [OBSERVED], "a", False),
        (trigger().only([7, 9]), [OBSERVED], "a", True),
        (trigger().only([5]), [OBSERVED], "a", False),
    ],
)
def test_what_a_block_tells_rules_out(asked: SubscriptionTrigger, types: list[str], source: str, out: bool) -> None:
    drafts = Drafts.of([draft(f"e{number}", type=each, node=source) for number, each in enumerate(types)])
    (block,) = pack(drafts, topic_id=1, position=5, seq=1, now=NOW)
    assert asked.rules_out(block) is out
