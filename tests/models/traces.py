"""Traces of links in the words of the model, and their check: a trace must be a path of the model.

A trace is text with one JSON object a line: `{"step": "send", "with": [0, 2]}` is a step of `LinkModel` and its
arguments. It has all steps of one link in one direction, in the order in which they happened, except those in
`UNSEEN`, which show in nothing that a node stores or sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from tests.models.explorer import Label, follow_trace
from tests.models.link import LinkModel

UNSEEN: Final = ("refuse", "give up", "reopen", "skip", "out of step", "hear nothing", "hear a query")


def write_trace(labels: Iterable[Label]) -> str:
    """Return a trace as text."""
    return "".join(json.dumps({"step": name, "with": arguments}) + "\n" for name, *arguments in labels)


def read_trace(text: str) -> list[Label]:
    """Parse a trace."""
    rows = map(json.loads, text.splitlines())
    return [(row["step"], *row["with"]) for row in rows]


def check_link_trace(text: str) -> str:
    """Return why the trace of a link is not a path of the model; empty if it is one."""
    labels = read_trace(text)
    names = [name for name, *_ in labels]
    model = LinkModel(
        events=names.count("emit"),
        crashes=sum(name.startswith(("crash", "upgrade")) for name in names),
        restores_sender=names.count("restore the sender"),
        restores_receiver=names.count("restore the receiver"),
        epochs=names.count("begin a new epoch"),
        evictions=names.count("evict"),
        repairs=names.count("repair"),
        twice=0,
        any_page=True,
        window=4,  # that of a peer whose declaration names none
        queries=True,
    )
    return follow_trace(model, labels, UNSEEN)
