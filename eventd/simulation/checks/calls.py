"""Counts calls of functions of the product while a run plays, where nothing else shows that a branch was taken.

The functions are replaced for the run: a node outside of a simulation has no trace of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any, Final, NamedTuple


class CountedCall(NamedTuple):
    """A function, by the module that calls it and its name there; `counts`: whether a result is one to count."""

    module: str
    name: str
    counts: Callable[[Any], bool] = lambda _: True

    def owner(self) -> tuple[Any, str]:
        """Return the module or class that has the function, and its name there."""
        *path, name = self.name.split(".")
        owner: Any = import_module(self.module)
        for each in path:
            owner = getattr(owner, each)
        return owner, name


CALLS: Final = {
    "epoch renewed at a start": CountedCall("eventd.log.core.head", "renew_epoch"),
    "range ahead waited": CountedCall("eventd.ingress.reorder_buffer", "ReorderBuffer._change"),
    "receipt given again": CountedCall(
        "eventd.ingress.batch", "StoreBatch._known_receipt", lambda found: found is not None
    ),
    "link forgotten": CountedCall("eventd.ingress.mark_queries", "LinkForgotten.__init__"),
    "batch halved": CountedCall("eventd.egress.peers.push_v2", "PushV2._halve"),
    "id taken": CountedCall("eventd.log.core.commit", "_carefully"),
    "units one by one": CountedCall("eventd.log.core.commit", "_one_by_one"),
    "transaction undone by the database": CountedCall(
        "eventd.log.core.commit", "in_transaction", lambda found: not found
    ),
    "fence lost": CountedCall("eventd.errors", "FenceLost.__init__"),
}
"""The branches by name."""


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Yield the counts of `CALLS`, which grow until the block ends."""
    found: Counter[str] = Counter()
    replaced = []
    for branch, call in CALLS.items():
        owner, name = call.owner()
        replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, _counting(getattr(owner, name), branch, call, found))
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
