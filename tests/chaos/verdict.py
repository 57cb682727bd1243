"""The checks after the faults: with requests to the nodes, and with the commands of an operator."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Collection, Iterator
from typing import Any

from tests.chaos.link_faults import ANSWERS_CHANGED
from tests.chaos.load import FAILED, Ledger
from tests.chaos.mesh import Member, Mesh
from tests.chaos.plan import OLD, Link
from tests.chaos.work import DERIVED
from tests.chaos.work_verdict import WorkVerdict

_HISTORY_OF = re.compile(r"[^/]+/(\S+) history")
"""The name of a check of doctor about the history of one node."""
REST_SECONDS = 120.0
"""How long after the last fault everything must be delivered. Links retry at least once a second."""


class Verdict:
    """Checks a mesh after its last fault."""

    def __init__(self, mesh: Mesh, ledger: Ledger, done: Collection[str]) -> None:
        self.mesh = mesh
        self.done = done
        self.ledger = ledger
        self.letters = 0
        self.rested = 0.0
        """Seconds until all deliveries were done."""
        self.last = ""
        """The last link to finish."""

    def judge(self, *, commands: bool) -> list[str]:
        """Return all errors. With `commands`, `verify` and `doctor` run too, which takes a second each."""
        begun = time.monotonic()
        while unrest := [*self._unrest()]:
            self.last = unrest[-1]
            if time.monotonic() - begun > REST_SECONDS:
                return [f"no rest within {REST_SECONDS:g} s: {why}" for why in unrest]
            time.sleep(0.2)
        self.rested = time.monotonic() - begun
        return [*self._contents(), *self._logs(), *(self._commands() if commands else ())]

    def _unrest(self) -> Iterator[str]:
        for name, member in self.mesh.members.items():
            if not member.ready():
                yield f"{name} is not ready"
                return
            yield from self.mesh.work.unrest(member)
        for link in self.mesh.plan.links:
            source = self.mesh.members[link.source].running
            try:
                shown = source.link(link.dest)
                if shown["deadLetters"]:  # a dead letter of a proxy's 413
                    self.letters += shown["deadLetters"]
                    source.ask("POST", "/groups/edge/dead-letters/retry", {"peer": link.dest})
            except FAILED as error:
                yield f"{link.name}: {error!r}"
                continue
            if shown["state"] != "running" or shown["lagEvents"] or shown["repairs"] or shown["deadLetters"]:
                kept = {name: shown[name] for name in ("state", "reason", "lastError", "lagEvents", "repairs")}
                yield f"{link.name}: {kept}"

    def _contents(self) -> Iterator[str]:
        held = {name: _rows(member) for name, member in self.mesh.members.items()}
        logs = {name: [row["id"] for row in rows] for name, rows in held.items()}
        for name, ids in logs.items():
            known = set(ids)
            if len(ids) != len(known):
                yield f"{name} shows {len(ids) - len(known)} events twice"
            yield from self._missing(name, known)
            yield from self._order(name, ids, logs)
            events, _ = self.mesh.members[name].running.counts()
            if events != len(ids):
                yield f"{name} counts {events} events and lists {len(ids)}"
            yield from self._work(self.mesh.members[name], ids, held[name])
        if self.mesh.old is not None:
            yield from self._missing(OLD, set(self.mesh.old.events))

    def _work(self, member: Member, ids: list[str], rows: list[dict[str, Any]]) -> Iterator[str]:
        skewed = any(fault.kind == "clock step" and fault.target == member.name for fault in self.mesh.faults)
        verdict = WorkVerdict(member, self.ledger, skewed=skewed, unsynced=member.unsynced)
        own = [row for row in rows if row["type"] == DERIVED and row["sourceNode"] == member.name]
        yield from verdict.violations(ids, [row["payload"]["of"] for row in own])

    def _missing(self, name: str, known: set[str]) -> Iterator[str]:
        lost = [
            event_id
            for event_id, event in self.ledger.promised()
            if event_id not in known and name in self.mesh.reaches(event.source, event.type)
        ]
        if lost:
            yield f"{name} misses {len(lost)} acknowledged events: {', '.join(lost[:5])}"

    def _order(self, name: str, ids: list[str], logs: dict[str, list[str]]) -> Iterator[str]:
        """Check that events of each source are in the order of its own log, except for those that were
        emitted twice."""
        plain = {
            event_id
            for event_id, event in self.ledger.promised()
            if not event.again and not self.ledger.touched_by_a_restore(event)
        }
        for source, own in logs.items():
            place = {event_id: at for at, event_id in enumerate(own) if event_id in plain}
            there = [place[event_id] for event_id in ids if event_id in place and event_id.startswith(f"{source}-")]
            for earlier, later in itertools.pairwise(there):
                if later < earlier:
                    yield f"{name} holds {own[earlier]} before {own[later]}, {source} the other way round"
                    break

    def _logs(self) -> Iterator[str]:
        for name, member in self.mesh.members.items():
            for line in member.log().splitlines():
                if "Traceback" in line:
                    yield f"{name} logged a traceback: {line[:2000]}"
                elif not member.troubled and _level(line) in ("error", "critical") and not self._is_known(line):
                    yield f"{name} logged: {line[:2000]}"

    def _commands(self) -> Iterator[str]:
        for name, member in self.mesh.members.items():
            done = member.control("doctor", "-o", "json")
            for check in json.loads(done.stdout)["checks"]:
                if check["status"] == "fail" and not self._expected(check):
                    yield f"{name}: doctor: {check}"
        for link in self.mesh.plan.links:
            if self._speaks_v2(link):
                yield from self._verify(link)

    def _is_known(self, line: str) -> bool:
        """Return whether the line is a finding about the tree of a node that came back from an older copy, or an answer
        with tiles that a fault changed on its way or took the place of."""
        if '"msg":"history tiles refused"' in line and "proves nothing" in line:
            return any(kind in ANSWERS_CHANGED for kind in self.mesh.hits)
        return bool(self.ledger.lost) and any(f'"kind":"{kind}"' in line for kind in ("rolled_back", "older_copy"))

    def _expected(self, check: dict[str, Any]) -> bool:
        """Return whether a check's finding is expected: times that a step of the clock distorts, the tree of a node
        that a restore took back."""
        about = _HISTORY_OF.match(check["name"])
        if about is not None and self.ledger.was_restored(about[1]):
            return True
        return "delivery lag" in check["name"] and "clock step" in self.done

    def _verify(self, link: Link) -> Iterator[str]:
        """Check with `verify`. Only events that a restored node had sent after its copy may be at its peers alone, or
        there with the content that they had before they were emitted again."""
        done = self.mesh.members[link.source].control("verify", "--peer", link.dest, "-o", "json")
        restored = any(source == link.source for source, _, _ in self.ledger.lost)
        if done.returncode not in ((0, 4) if restored else (0,)):
            yield f"{link.name}: verify ends with {done.returncode}:\n{done.stdout[:2000]}{done.stderr}"
        elif done.returncode:
            events = json.loads(done.stdout)["events"]
            wrong = {name: events[name] for name in ("missing", "unresolved", "untold") if events[name]}
            known = self.ledger.events
            ours = [known[each] for each in events["otherIds"] if each in known]
            replaced = [event for event in ours if self.ledger.touched_by_a_restore(event)]
            if events["other"] != len(replaced):
                wrong["other"] = events["other"]
            if wrong or not (events["extra"] or replaced):
                yield f"{link.name}: verify finds {wrong}: {done.stdout[:2000]}"

    def _speaks_v2(self, link: Link) -> bool:
        return link.dest != OLD and not {link.source, link.dest} & set(self.mesh.plan.v1)


def _rows(member: Member) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        page = member.running.ask("GET", "/groups/edge/events", limit=1000, includeExpired="true", after=after)
        found += page["events"]
        if page["next"] is None:
            return found
        after = page["next"]


def _level(line: str) -> str:
    try:
        told = json.loads(line)
    except ValueError:
        return ""
    return str(told.get("level", "")) if isinstance(told, dict) else ""
