"""How old what a seq of the group has can be, by what the clients of a node know of its seqs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from eventd.simulation.world.journal import Journal


class SeqAnswer(NamedTuple):
    """A seq that an answer has named, and when its event was first emitted."""

    answered_at: float
    seq: int
    emitted_at: float


class GroupSeqs:
    """The seqs of the group at one node, by its answers to emits and by its lists; `begin`: of the run."""

    def __init__(self, journal: Journal, host: str, emitted_at: Mapping[str, float], begin: float) -> None:
        self._begin = begin
        named = (each for each in _seqs_in_answers(journal, host) if each[2] in emitted_at)
        self._answers = [SeqAnswer(at, seq, emitted_at[event_id]) for at, seq, event_id in named]

    def emitted_after(self, seq: int, asked_at: float) -> float:
        """Return a time before which the record that an answer to a later question has at a seq was not written.

        Seqs rise with time: it is later than those of lower seqs that were known when the question was asked. A loss
        in between only makes it later.
        """
        known = (each for each in self._answers if each.answered_at < asked_at and each.seq <= seq)
        return max((each.emitted_at for each in known), default=self._begin)


def _seqs_in_answers(journal: Journal, host: str) -> Iterator[tuple[float, int, str]]:
    """Yield when a seq was answered, the seq, and the id of its event."""
    for asked in journal.asked:
        if asked.host != host or not asked.is_good:
            continue
        if asked.kind == "listing":
            yield from ((asked.answered_at, each["seq"], each["id"]) for each in asked.answer)
        elif asked.kind == "emit":
            for result in asked.answer["results"]:
                if result["result"] == "new" and result["event"] and "seq" in result["event"]:
                    yield asked.answered_at, result["event"]["seq"], result["id"]
