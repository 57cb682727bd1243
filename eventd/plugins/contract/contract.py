"""The input and output of a plugin as plain values, the same for executables and entry points.

A plugin does not change the configuration itself: it receives events and returns a proposal, which the node checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from eventd.errors import EventdError
from federation.event import Event, encode, format_time

API_VERSION: Final = "plugin.routerd.net/v1alpha1"
REQUEST: Final = "PluginRequest"

SUBSCRIPTION_TRIGGER: Final = "federation-subscription"
MANUAL_TRIGGER: Final = "manual"
INTERVAL_TRIGGER: Final = "interval"

MAX_STDERR_KEPT: Final = 8192
"""How many characters of a run's standard error are kept, from its end."""


def subscription_topic(name: str) -> str:
    """Return the `trigger.topic` in the requests of an EventSubscription; it does not name a topic of the log."""
    return f"routerd.federation.subscription/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The input of one run. `now` in microseconds; `context` holds resources as returned by `context_of`."""

    plugin: str
    trigger: str
    topic: str
    now: int
    events: Sequence[Event] = ()
    context: Sequence[Mapping[str, Any]] = ()
    startup_hash: str = ""
    effective_generation: int = 0
    previous_generation: int = 0

    def encode(self) -> bytes:
        """Return the request as JSON: the standard input of an executable, or the content of a frame for a host."""
        head = {
            "apiVersion": API_VERSION,
            "kind": REQUEST,
            "metadata": {"name": self.plugin},
            "spec": {
                "trigger": {"type": self.trigger, "topic": self.topic},
                "startupConfigHash": self.startup_hash,
                "effectiveGeneration": self.effective_generation,
                "previousDynamicGeneration": self.previous_generation,
                "now": format_time(self.now),
            },
        }
        context = {"resources": list(self.context)} if self.context else {}
        parts = [msgspec.json.encode(head).removesuffix(b"}}")]
        if self.events:  # the bytes of events are produced in one place only
            parts += [b',"events":[', b",".join(map(encode, self.events)), b"]"]
        return b"".join((*parts, b',"context":', msgspec.json.encode(context), b"}}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The proposal of an answer in valid form. `observed_at` and `ttl` are in microseconds, `ttl` is above 0.

    `resources` are whole documents with metadata, each once; `directives` and `action_plans` are mappings as in an
    answer. `events` are as the plugin wrote them: most of their fields are checked only when they are emitted.
    """

    observed_at: int
    ttl: int
    resources: Sequence[dict[str, Any]] = ()
    directives: Sequence[dict[str, Any]] = ()
    action_plans: Sequence[dict[str, Any]] = ()
    events: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a successful run.

    Times are in microseconds. `exit_code` is None for an entry point; `stdout_digest` is the SHA-256 of the answer in
    hex.
    """

    exit_code: int | None
    stdout_digest: str
    stderr: str = field(repr=False)
    started_at: int
    completed_at: int
    result: Result = field(repr=False)


class PluginFailed(EventdError):
    """A run failed, or its result cannot be used. `reason` is a stable slug.

    `about_plugin`: the plugin cannot run at all, so that no event is the cause. `transient`: the same run may succeed
    later without a change.
    """

    code = "plugin_failed"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "unknown",
        hint: str = "",
        about_plugin: bool = False,
        transient: bool = False,
        exit_code: int | None = None,
        stdout_digest: str = "",
        stderr: str = "",
        started_at: int = 0,
        completed_at: int = 0,
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.about_plugin = about_plugin
        self.transient = transient
        self.exit_code = exit_code
        self.stdout_digest = stdout_digest
        self.stderr = stderr
        self.started_at = started_at
        self.completed_at = completed_at
        self.detail: dict[str, object] = {}
