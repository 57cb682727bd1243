"""Plugin and DynamicConfigSource: a program or function that turns events into proposals, and when it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from eventd.resources.kinds.fields import Duration, EntryPointName, GroupName, ProgramPath, Reference, Texts, Whole
from eventd.resources.kinds.spec import Finding, Spec, wrong
from eventd.text.duration import MINUTE, SECOND

Capability = Literal[
    "observe.cloud",
    "observe.providerPrivateIPs",
    "propose.dynamicConfig",
    "propose.providerAction",
    "execute.providerAction",
    "emit.events",
]


def _positive(value: int) -> int:
    if value <= 0:
        raise wrong("must be longer than 0s")
    return value


_Span = Annotated[Duration, AfterValidator(_positive)]


class PluginTrigger(Spec):
    """When a plugin runs in addition to subscriptions. Only the type interval has an effect."""

    type: Literal["interval", "event"] = Field(
        description="interval runs the plugin at intervals; event is accepted and has no effect."
    )
    every: _Span | None = Field(default=None, description="The time between the starts of two runs; for type interval.")
    topic: str = Field(default="", description="For type event; has no effect.")

    def findings(self) -> Iterator[Finding]:
        """Yield a fault for `every` or `topic`, if the type requires it or does not allow it."""
        if self.type == "interval" and self.every is None:
            yield Finding(("every",), "is required for a trigger whose type is interval")
        if self.type == "interval" and self.topic.strip():
            yield Finding(("topic",), "is only for type event, and type is interval")
        if self.type == "event" and self.every is not None:
            yield Finding(("every",), "is only for type interval, and type is event")


class ResourceReference(Spec):
    """The identity of a resource."""

    api_version: Reference = Field(description="Its apiVersion.")
    kind: Reference = Field(description="Its kind.")
    name: Reference = Field(description="Its name.")


class PluginContext(Spec):
    """The resources that a plugin receives with each run."""

    resources: tuple[ResourceReference, ...] = Field(
        default=(), description="The resources that the plugin receives, without secrets; they need not exist."
    )


class PluginSpec(Spec):
    """The spec of a Plugin."""

    executable: ProgramPath = Field(
        default="", description="Absolute path of the program, which is started for each run."
    )
    entry_point: EntryPointName = Field(
        default="", description="Instead of executable: a name in the entry point group eventd.plugins."
    )
    timeout: _Span = Field(default=10 * SECOND, description="How long one run may take.")
    concurrency: Annotated[Whole, Field(ge=1, le=64)] = Field(
        default=4, description="Maximum number of concurrent runs."
    )
    ttl: _Span = Field(
        default=10 * MINUTE, description="With entryPoint: how long a result without a ttl remains in effect."
    )
    env: Texts = Field(default={}, description="Added to the program's environment.")
    capabilities: tuple[Capability, ...] = Field(default=(), description="What the plugin's results may contain.")
    triggers: tuple[PluginTrigger, ...] = Field(
        default=(), description="When the plugin runs in addition to subscriptions."
    )
    context: PluginContext = Field(default_factory=PluginContext, description="The resources that the plugin receives.")

    def findings(self) -> Iterator[Finding]:
        """Require executable or entryPoint, not both; refuse ttl with executable, which sets it in each result."""
        if self.executable and self.entry_point:
            yield Finding(("entryPoint",), "executable and entryPoint exclude each other", "leave one of them out")
        elif not (self.executable or self.entry_point):
            yield Finding(("executable",), "is required, or entryPoint instead of it")
        elif self.executable and "ttl" in self.model_fields_set:
            yield Finding(
                ("ttl",), "is only for entryPoint, and executable is given", "an executable sets the ttl in each result"
            )


class MergePolicy(Spec):
    """What happens when two owners propose one resource."""

    conflict: Annotated[Literal["", "reject"], AfterValidator(lambda value: value or "reject")] = Field(
        default="reject", description="Only reject; empty means the same."
    )


class DynamicConfigSourceSpec(Spec):
    """The spec of a DynamicConfigSource."""

    plugin_ref: GroupName = Field(description="Name of the Plugin.")
    ttl: _Span = Field(description="The longest time that a result remains in effect.")
    merge_policy: MergePolicy = Field(
        default_factory=MergePolicy, description="What happens when two owners propose one resource."
    )
    triggers: tuple[PluginTrigger, ...] = Field(default=(), description="When the plugin is run.")
