"""Checks whether a plugin keeps the contract: sends it valid and invalid requests, and judges each answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from eventd.plugins.contract.contract import MANUAL_TRIGGER, Outcome, PluginFailed, RunRequest
from eventd.plugins.run.executable import LOOK
from eventd.plugins.run.plugins import Plugins
from eventd.resources.plugin_configuration import PluginConfig
from eventd.resources.reading.problems import shorten
from eventd.runtime.clock import SECOND, Clock
from eventd.text.plural import counted
from federation.event import UNSET, Event, from_micros

DEFAULT_TYPE: Final = "routerd.client.ipv4.observed"
MANY: Final = 1024
"""Number of events in the largest batch that a plugin receives."""

_EVERYTHING: Final = frozenset(("propose.dynamicConfig", "propose.providerAction", "emit.events"))


def undeclared(name: str, *, executable: str = "", entry_point: str = "") -> PluginConfig:
    """Return a configuration for an undeclared plugin: a Plugin's defaults, and the right to propose everything."""
    return PluginConfig(
        name=name,
        executable=executable,
        entry_point=entry_point,
        timeout=10 * SECOND,
        concurrency=4,
        ttl=600 * SECOND,
        env=(),
        capabilities=_EVERYTHING,
        context=(),
    )


State = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class PluginCheck:
    """The result of one check.

    `took` in microseconds, 0 if not measured; `reason` is the fault or the observation. `stderr`: the end of the
    standard error of a failed run; empty for a check with an invalid request.
    """

    check: str
    state: State
    took: int = 0
    reason: str = ""
    stderr: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NextVersionRequest(RunRequest):
    """A request as a later version might send it, with unknown members."""

    def encode(self) -> bytes:
        request = msgspec.json.decode(RunRequest.encode(self))
        spec = request["spec"]
        for place in (request, request["metadata"], spec, spec["trigger"], spec["context"], *spec.get("events", ())):
            place["laterMember"] = {"unknown": [1, None, "ż"]}
        return msgspec.json.encode(request)


def sample_event(number: int, type: str, now: int, **fields: Any) -> Event:
    """Return a sample event: client `number` observed at `now` (microseconds); `fields` replace those of the sample."""
    address = f"10.{88 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"
    given: dict[str, Any] = {
        "id": f"check-{number}",
        "group": "check",
        "source_node": "onprem",
        "type": type,
        "subject": f"{address}/32",
        "dedupe_key": f"check-{number}",
        "payload": {"address": address, "name": f"client{number}", "mac": "02:00:00:00:00:01", "domain": "example"},
        "observed_at": from_micros(now),
        "expires_at": from_micros(now + 600 * SECOND),
    }
    return Event(**(given | fields))


@dataclass(slots=True)
class Checking:
    """The checks of one plugin. `event_type` is the type of the sample events."""

    plugins: Plugins
    config: PluginConfig
    clock: Clock
    environment: Mapping[str, str]
    context: Sequence[Mapping[str, Any]] = ()
    event_type: str = DEFAULT_TYPE
    _slowest: int = 0
    _proposed: int = 0
    _outcomes: dict[str, Outcome] = field(default_factory=dict)

    async def run(self) -> AsyncIterator[PluginCheck]:
        """Yield the result of each check as soon as it is known. Ends early if the plugin cannot run at all."""
        first = await self._requested("no events", [])
        yield first
        if first.state == "failed" and self._unusable:
            return
        for name, events in self._batches().items():
            yield await self._requested(name, events)
        yield await self._requested("unknown members", [self._event(1)], form=_NextVersionRequest)
        yield await self._same_again()
        yield await self._together()
        yield self._leaves_what_is_declared()
        if self.config.executable:
            yield await self._nonsense("nothing to read", b"")
            yield await self._nonsense("garbage to read", b'\xff\xfe{"kind": [' * 1000)
        yield self._in_time()
        yield self._proposes()

    _unusable: bool = False

    def _event(self, number: int, **fields: Any) -> Event:
        return sample_event(number, fields.pop("type", self.event_type), self.clock.now(), **fields)

    def _batches(self) -> dict[str, list[Event]]:
        odd = {"subject": 'żółw 雪 🐌 " \\ \t \u2028', "payload": {"ключ": "знач\nение", "empty": ""}}
        bare = {"source_node": "", "subject": "", "payload": {}, "expires_at": UNSET}
        return {
            "one event": [self._event(1)],
            f"{MANY} events": [self._event(number) for number in range(MANY)],
            "two events about one thing": [self._event(1), self._event(1, id="check-again", payload={"mac": "02::2"})],
            "any characters": [self._event(1, **odd)],
            "an event without details": [self._event(1, **bare)],
            "an event of another type": [self._event(1, type="eventd.check.unknown")],
            "a large event": [self._event(1, payload={"text": "x" * 200_000})],
        }

    def _request(self, events: Sequence[Event], form: type[RunRequest] = RunRequest) -> RunRequest:
        return form(
            plugin=self.config.name,
            trigger=MANUAL_TRIGGER,
            topic="",
            now=self.clock.now(),
            events=events,
            context=self.context,
        )

    async def _requested(self, name: str, events: Sequence[Event], form: type[RunRequest] = RunRequest) -> PluginCheck:
        try:
            outcome = await self.plugins.run(self.config, self._request(events, form))
        except PluginFailed as failed:
            self._unusable = failed.about_plugin
            return _failure(name, failed, failed.completed_at - failed.started_at)
        took = outcome.completed_at - outcome.started_at
        self._slowest = max(self._slowest, took)
        self._proposed += _size(outcome)
        self._outcomes[name] = outcome
        return PluginCheck(name, "ok", took, _summary(outcome))

    async def _same_again(self) -> PluginCheck:
        """Send one request twice, and check that both results have equal resources, directives and action plans.

        A node that repeats a batch must get the same proposals.
        """
        name = "the same twice"
        request = self._request([self._event(number) for number in range(3)])
        try:
            outcomes = [await self.plugins.run(self.config, request) for _ in range(2)]
        except PluginFailed as failed:
            return _failure(name, failed)
        one, other = map(_proposal, outcomes)
        if one == other:
            return PluginCheck(name, "ok", 0, "the same resources, directives and plans")
        differ = [what for what in one if one[what] != other[what]]
        reason = f"{', '.join(differ)} differ: derive names and contents from the events, not from time or randomness"
        return PluginCheck(name, "failed", 0, reason)

    async def _together(self) -> PluginCheck:
        """Check that several runs at once, up to `concurrency` but at most four, all succeed."""
        name, count = "several at once", min(4, self.config.concurrency)
        if count < 2:
            return PluginCheck(name, "skipped", 0, "spec.concurrency is 1")
        requests = [self._request([self._event(number)]) for number in range(count)]
        runs = [self.plugins.run(self.config, request) for request in requests]
        found = await asyncio.gather(*runs, return_exceptions=True)
        for outcome in found:
            if isinstance(outcome, PluginFailed):
                return _failure(name, outcome)
            if isinstance(outcome, BaseException):
                raise outcome
        return PluginCheck(name, "ok", 0, f"{count} runs")

    def _leaves_what_is_declared(self) -> PluginCheck:
        """Check that no result of `_requested` defines a resource of the context, all of which are declared."""
        name = "does not redefine declared resources"
        if not self.context:
            return PluginCheck(name, "skipped", 0, "the plugin receives no declared resources")
        shown = {(found["apiVersion"], found["kind"], found["name"]) for found in self.context}
        for outcome in self._outcomes.values():
            for found in outcome.result.resources:
                identity = (found["apiVersion"], found["kind"], found["metadata"]["name"])
                if identity in shown:
                    reason = f"proposes {'/'.join(identity)}, which is declared: choose another name"
                    return PluginCheck(name, "failed", 0, reason)
        return PluginCheck(name, "ok")

    async def _nonsense(self, name: str, raw: bytes) -> PluginCheck:
        """Check that a program that gets no valid request fails by exit status or signal, or returns no resources."""
        begun = self.clock.now()
        try:
            answer = await self.plugins.run_raw(self.config, raw)
        except PluginFailed as failed:
            state: State = "ok" if failed.reason in ("exit_code", "killed") else "failed"
            return PluginCheck(name, state, self.clock.now() - begun, failed.message)
        took = self.clock.now() - begun
        if b'"resources"' in answer.stdout or b"resources:" in answer.stdout:
            reason = "returns resources for invalid input: exit with a status other than 0"
            return PluginCheck(name, "failed", took, reason)
        return PluginCheck(name, "ok", took, "proposes nothing")

    def _in_time(self) -> PluginCheck:
        limit = self.config.timeout
        name, took = "well within its time limit", self._slowest
        if took > limit // 2:
            return PluginCheck(
                name, "failed", took, f"the slowest run took more than half of spec.timeout ({limit / SECOND:g}s)"
            )
        return PluginCheck(name, "ok", took, f"the slowest run; spec.timeout is {limit / SECOND:g}s")

    def _proposes(self) -> PluginCheck:
        name = "proposes something"
        if self._proposed:
            return PluginCheck(name, "ok", 0, f"{counted(self._proposed, 'proposal')} in all")
        return PluginCheck(
            name,
            "skipped",
            0,
            f"nothing for events of type {self.event_type} with {', '.join(self._event(1).payload)} in the payload: "
            "if it expects another type, name it with --type",
        )


def _failure(name: str, failed: PluginFailed, took: int = 0) -> PluginCheck:
    """Return the result of a check whose run failed, with the run's standard error, which is stored nowhere else."""
    reason = failed.message if failed.hint == LOOK else str(failed)
    last = shorten(failed.stderr.strip().rpartition("\n")[2], 200)
    if last not in reason:
        reason += f"; its last output: {last}"
    return PluginCheck(name, "failed", took, reason, failed.stderr)


def _size(outcome: Outcome) -> int:
    result = outcome.result
    return len(result.resources) + len(result.directives) + len(result.action_plans) + len(result.events)


_COUNTED: Final[dict[str, Callable[[Outcome], int]]] = {
    "resource": lambda outcome: len(outcome.result.resources),
    "directive": lambda outcome: len(outcome.result.directives),
    "action plan": lambda outcome: len(outcome.result.action_plans),
    "event": lambda outcome: len(outcome.result.events),
}


def _summary(outcome: Outcome) -> str:
    numbers = {noun: count(outcome) for noun, count in _COUNTED.items()}
    counts = [counted(number, noun) for noun, number in numbers.items() if number]
    return ", ".join(counts) or "proposes nothing"


def _proposal(outcome: Outcome) -> dict[str, list[dict[str, Any]]]:
    result = outcome.result
    return {
        "resources": list(result.resources),
        "directives": list(result.directives),
        "action plans": list(result.action_plans),
    }
