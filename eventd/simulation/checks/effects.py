"""Checks of subscriptions: an event has its effect once, or is a dead letter; the parts are those of the last runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from eventd.simulation.checks.violation import Violation
from eventd.simulation.load.subscriptions import MATCHED, OWNER, PART_LISTING, RUN_LISTING
from eventd.simulation.world.journal import PLUGIN_RUN, Journal
from eventd.simulation.world.played_plugin import DERIVED, door_of

_SUCCEEDED: Final = "succeeded"
_PARKED: Final = "parked"
_COALESCED: Final = "coalesced"
_ENDS: Final = (_SUCCEEDED, _PARKED)
"""The outcomes of the newest run of an event at rest."""


class EffectReference:
    """What must be true of the subscription of one node by the answers of one run, and by the runs of the plugin."""

    def __init__(self, journal: Journal, host: str, begin: float) -> None:
        self._host = host
        self._begin = begin
        own = [asked for asked in journal.asked if asked.host == host]
        declared = [asked for asked in own if asked.kind == "subscription"]
        self._asked_at = declared[-1].answered_at if declared else None
        self._is_declared = any(asked.is_good for asked in declared)
        self._runs = [asked for asked in own if asked.kind == RUN_LISTING]
        self._parts = [asked for asked in own if asked.kind == PART_LISTING and asked.is_good]
        self._lists = [asked for asked in own if asked.kind == "listing"]
        self._played = [(asked.question, asked.answer) for asked in own if asked.kind == PLUGIN_RUN]
        self._is_restored = journal.is_restored(host)
        emits = [each for asked in journal.of("emit") for each in asked.question["events"]]
        self._refreshed = {each["id"] for each in emits if "expiresAt" in each}
        self._is_evicting = host in journal.retentions
        self._evicted = {each["id"] for each in emits if self._is_evicting and each["type"].startswith(MATCHED)}
        """Events that match, and may have been evicted after they had their effect."""

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong at rest."""
        if self._asked_at is not None and not self._is_declared:
            detail = "the subscription was not taken"
            yield Violation("V13", self._host, detail, self._asked_at - self._begin)
        if not (self._is_declared and self._runs and self._parts and self._lists):
            return
        outcomes = {row["eventId"]: row for row in reversed(self._runs[-1].answer)}
        yield from self._effects(outcomes)
        yield from self._answers(outcomes)
        yield from self._resources(outcomes)

    def _found(self, detail: str, invariant: str = "V13") -> Violation:
        return Violation(invariant, self._host, detail, self._runs[-1].answered_at - self._begin)

    def _effects(self, outcomes: dict[str, Any]) -> Iterator[Violation]:
        """An event that matches has one derived event, or is a dead letter.

        After a restore it may be run again, and its derived event come back from a peer: that is named after the events
        of its run, so that an event has at most one for each set of events with which it was run.
        """
        events = self._lists[-1].answer
        derived = [each for each in events if each["type"] == DERIVED and each["sourceNode"] == self._host]
        effects = Counter(each["payload"]["of"] for each in derived)
        matching = [each["id"] for each in events if each["type"].startswith(MATCHED)]
        for name in matching:
            outcome = outcomes[name]["outcome"] if name in outcomes else "not run"
            least, ends = int(outcome == _SUCCEEDED), [*_ENDS]
            most = self._runs_of(name) if self._is_restored else least
            if name in self._refreshed:  # it is run for each record that is not coalesced
                most, ends = self._runs_of(name), [*_ENDS, _COALESCED]
                least = 0 if self._is_evicting else least  # retention may have taken the effect of an evicted record
            if outcome not in ends or not least <= effects[name] <= most:
                yield self._found(f"{name} is {outcome}, and has {effects[name]} effects")
                return
        others = effects.keys() - set(matching) - self._evicted
        if self._is_restored:  # it may have taken an event everywhere, and left its effect at a peer
            others &= {each["id"] for each in events}
        if others:
            yield self._found(f"an effect of {min(others)}, which does not match")

    def _runs_of(self, name: str) -> int:
        """Return with how many different sets of events the plugin was run for an event, and has answered."""
        return len({frozenset(ids) for ids, how in self._played if how == "answered" and name in ids})

    def _answers(self, outcomes: dict[str, Any]) -> Iterator[Violation]:
        """An event has an effect only if the plugin has answered, and none if the plugin refuses it."""
        answered = {name for ids, how in self._played if how == "answered" for name in ids}
        failed = {name for ids, how in self._played if how != "answered" for name in ids}
        refused = {ids[0] for ids, how in self._played if how == "refused" and len(ids) == 1}
        for name, row in outcomes.items():
            if row["outcome"] == _SUCCEEDED and (name not in answered or name in refused):
                yield self._found(f"{name} is settled without an answer of the plugin")
                return
            if row["outcome"] == _PARKED and name not in failed and "node ended" not in row["error"]:
                yield self._found(f"{name} is a dead letter, and the plugin has never failed with it")
                return

    def _resources(self, outcomes: dict[str, Any]) -> Iterator[Violation]:
        """A resource is in one part, and is what the last run about it has proposed."""
        given: dict[str, list[Any]] = {}
        for part in self._parts[-1].answer["parts"]:
            by_name = {each["metadata"]["name"]: each["spec"]["of"] for each in part["resources"]}
            for each in part["gives"]:
                given.setdefault(each["name"], []).append(by_name.get(each["name"]))
        last: dict[str, tuple[int, str]] = {}
        for name, row in outcomes.items():
            if row["outcome"] == _SUCCEEDED:
                last[door_of(name)] = max(last.get(door_of(name), (0, "")), (row["id"], name))
        for door, (_, name) in last.items():
            if given.get(door) != [name]:
                yield self._found(f"{door} of {OWNER} is {given.get(door)}, and the last run about it was for {name}")
                return
