"""Counts calls of functions of the product while a run plays, where nothing else shows that a branch was taken.

The functions are replaced for the run: a node outside of a simulation has no trace of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, NamedTuple

from eventd.egress.peers.push_v2 import PushV2
from eventd.errors import FenceLost
from eventd.groups import retention
from eventd.ingress import batch
from eventd.ingress.batch import StoreBatch
from eventd.ingress.mark_queries import LinkForgotten
from eventd.ingress.reorder_buffer import ReorderBuffer
from eventd.log.core import commit, head
from eventd.log.retention import evict
from eventd.store.engine import fence
from eventd.store.engine.claim import DatabaseClaim


class CountedCall(NamedTuple):
    """A function, by the module that calls it, or its class, and its name there.

    `counts`: whether a result is one to count.
    """

    owner: Any
    name: str
    counts: Callable[[Any], bool] = lambda _: True


CALLS: Final = {
    "epoch renewed at a start": CountedCall(head, "renew_epoch"),
    "range ahead waited": CountedCall(ReorderBuffer, "_change"),
    "receipt given again": CountedCall(StoreBatch, "_known_receipt", lambda found: found is not None),
    "link forgotten": CountedCall(LinkForgotten, "__init__"),
    "batch halved": CountedCall(PushV2, "_halve"),
    "id taken": CountedCall(commit, "_carefully"),
    "units one by one": CountedCall(commit, "_one_by_one"),
    "gap reported": CountedCall(batch, "record_gap"),
    "events evicted": CountedCall(retention, "evict", lambda done: done.records > 0),
    "event held back": CountedCall(evict, "_first_undelivered", lambda found: found is not None),
    "fence lost": CountedCall(FenceLost, "__init__"),
    "claim regained": CountedCall(DatabaseClaim, "_retake", bool),
    "session refused": CountedCall(fence, "is_held", lambda held: not held),
}
"""The branches by name."""


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Yield the counts of `CALLS`, which grow until the block ends."""
    found: Counter[str] = Counter()
    replaced = []
    for branch, call in CALLS.items():
        before = getattr(call.owner, call.name)
        replaced.append((call.owner, call.name, before))
        setattr(call.owner, call.name, _counting(before, branch, call, found))
    try:
        yield found
    finally:
        for owner, name, before in replaced:
            setattr(owner, name, before)


def _counting(function: Callable[..., Any], branch: str, call: CountedCall, found: Counter[str]) -> Callable[..., Any]:
    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        found[branch] += call.counts(result)
        return result

    return counted
