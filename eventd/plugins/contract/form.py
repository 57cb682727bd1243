"""The structure of a plugin's answer as models; the JSON Schema of answers is generated from them.

Fields are checked in their order. Unknown members are not refused, so that a plugin written for a later version works
here: they are ignored, but kept in action plans, their targets and undos, and in events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, FailFast, Field, WithJsonSchema, model_validator

from eventd.errors import EventdError
from eventd.resources.kinds.spec import Finding, Spec, wrong
from eventd.text.duration import PATTERN, parse_duration
from federation.errors import BadEvent
from federation.event import UNSET, from_micros, micros
from federation.lenient import parse_time

MAX_NAME = 512


def _name(value: str) -> str:
    if not value.strip():
        raise wrong("is required")
    if len(value) > MAX_NAME or not value.isprintable():
        raise wrong(f"must be at most {MAX_NAME} printable characters")
    return value


def _ttl(value: str) -> str:
    if not value:
        raise wrong("is required", "write how long the result remains in effect, for example 10m")
    try:
        ttl = parse_duration(value)
    except EventdError as error:
        raise wrong(error.message, error.hint) from None
    if ttl <= 0:
        raise wrong("must be longer than 0s", "an empty result withdraws earlier proposals")
    return value


def read_time(text: str) -> int | None:
    """Return an RFC 3339 time as microseconds since 1970; None for 0001-01-01T00:00:00Z. Raises BadEvent."""
    time = parse_time(text)
    return None if time == UNSET else micros(time)


def _time(value: str) -> str:
    try:
        read_time(value)
    except BadEvent:
        raise wrong("must be a time such as 2026-05-30T12:00:05Z") from None
    return value


def _fields(value: Any) -> Any:
    if not isinstance(value, dict):
        raise wrong("must be a mapping of fields")
    return value


ItemT = TypeVar("ItemT")
Listed = Annotated[tuple[ItemT, ...], FailFast()]
"""A list whose first fault ends its check: it may have a hundred thousand faults."""
Fields = Annotated[dict[str, Any], BeforeValidator(_fields)]
Name = Annotated[str, AfterValidator(_name), WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_NAME})]
Ttl = Annotated[str, AfterValidator(_ttl), WithJsonSchema({"type": "string", "pattern": f"^(?:{PATTERN})$"})]
Time = Annotated[str, AfterValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"})]


class Form(Spec):
    """The base of the models of the contract: ignores unknown members, and takes a member that is null as absent."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _drop_null(cls, value: Any) -> Any:
        """Return the members that are not null: programs in some languages write absent members as null."""
        return {key: inner for key, inner in value.items() if inner is not None} if isinstance(value, dict) else value


class Metadata(Form):
    """The name, owners and annotations of a resource."""

    name: Name = Field(description="Identifies the resource, together with apiVersion and kind.")
    owner_refs: tuple[Fields, ...] | None = Field(default=None, description="Stored unchanged.")
    annotations: dict[str, str] | None = Field(default=None, description="Stored; the node adds its own.")


class ProposedResource(Form):
    """A resource to add to the effective configuration."""

    api_version: Name = Field(description="For example net.routerd.net/v1alpha1.")
    kind: Name = Field(description="For example IPv4Route.")
    metadata: Metadata = Field(description="Its name and annotations.")
    spec: Fields = Field(description="The content.")


class Target(Form):
    """The declared resource that a directive acts on."""

    api_version: Name = Field(description="Its apiVersion.")
    kind: Name = Field(description="Its kind.")
    name: Name = Field(description="Its name.")


class Directive(Form):
    """An action on a declared resource, if a DynamicOverridePolicy allows it."""

    op: Literal["mask"] = Field(description="mask: the resource has no effect while the part is in effect.")
    target: Target = Field(description="The declared resource.")
    reason: str = Field(default="", description="The reason, shown to operators.")


AssignAction = Literal["assign-secondary-ip", "unassign-secondary-ip"]
RouteAction = Literal["assign-route-table-route", "unassign-route-table-route"]
ForwardingAction = Literal["ensure-forwarding-enabled", "ensure-forwarding-disabled"]
Action = Literal[AssignAction, RouteAction, ForwardingAction]


class PlanTarget(Form):
    """The target of an action. The required fields depend on the action."""

    model_config = ConfigDict(extra="allow")

    address: str = Field(default="", description="The address.")
    nic_ref: str = Field(default="", description="The network interface, as the provider names it.")
    route_table_ref: str = Field(default="", description="The route table, as the provider names it.")
    capture_strategy: str = Field(default="", description="How the address is captured, for example route-table.")


class Undo(Form):
    """The action that reverts the action of a plan."""

    model_config = ConfigDict(extra="allow")

    action: Action = Field(description="The reverting action.")


class ActionPlan(Form):
    """A proposed action at an external system (`provider`). It is shown to operators and never executed."""

    model_config = ConfigDict(extra="allow")

    name: Name = Field(description="The name of the plan.")
    provider: Literal["aws", "azure", "oci", "gcp"] = Field(description="The provider whose interface would be used.")
    action: Action = Field(description="The proposed action.")
    target: PlanTarget = Field(default=PlanTarget(), description="The target of the action.")
    mode: str = Field(default="", description="Empty or dry-run, which mean the same.")
    risk_level: Literal["", "low", "medium", "high"] = Field(default="", description="The risk of the action.")
    undo: Undo | None = Field(default=None, description="The action that reverts `action`.")

    def findings(self) -> Iterator[Finding]:
        """Yield a fault for each `target` field that the action lacks, and for a `mode` except empty and dry-run."""
        for name in self._needed():
            if not _field(self.target, name).strip():
                yield Finding(("target", name), f"is required for {self.action}")
        if self.mode == "execute":
            yield Finding(("mode",), "must not be execute", "a plugin proposes actions; it never executes them")
        elif self.mode not in ("", "dry-run"):
            yield Finding(("mode",), "must be dry-run or empty")

    def _needed(self) -> tuple[str, ...]:
        if "secondary-ip" in self.action:
            by_table = self.target.capture_strategy == "route-table"
            return ("address", "nicRef", "routeTableRef") if by_table else ("address", "nicRef")
        return ("address", "routeTableRef", "nicRef") if "route-table-route" in self.action else ()


def _field(target: PlanTarget, name: str) -> str:
    return {"address": target.address, "nicRef": target.nic_ref, "routeTableRef": target.route_table_ref}[name]


class EmittedEvent(Form):
    """An event to emit in the group of the run's events. Other members are checked only when it is emitted."""

    model_config = ConfigDict(extra="allow")

    type: Name = Field(description="The type of the event, with dots.")
    message: str = Field(default="", description="The member `message` of the payload, unless `payload` is given.")
    attributes: dict[str, str] = Field(default={}, description="The payload, unless `payload` is given.")


class Status(Form):
    """All that a plugin proposes in one run, and for how long: resources, directives, actions and events."""

    ttl: Ttl = Field(description="How long the result remains in effect, from observedAt.")
    observed_at: Time | None = Field(default=None, description="When the result was observed; default: now.")
    resources: Listed[ProposedResource] = Field(default=(), description="Proposed resources.")
    directives: Listed[Directive] = Field(default=(), description="Proposed changes of declared resources.")
    action_plans: Listed[ActionPlan] = Field(default=(), description="Proposed actions at providers.")
    events: Listed[EmittedEvent] = Field(default=(), description="Events to emit.")

    def findings(self) -> Iterator[Finding]:
        """Yield a fault if `observedAt` is given and the result would end after the year 9999."""
        observed = read_time(self.observed_at) if self.observed_at else None
        if observed is not None:
            try:
                from_micros(observed + parse_duration(self.ttl))
            except OverflowError:
                yield Finding(("observedAt",), "is too late: the result would end after the year 9999")


class Answer(Form):
    """What an executable plugin writes to its standard output, as JSON or YAML."""

    api_version: Literal["plugin.routerd.net/v1alpha1"] = Field(description="The version of this form.")
    kind: Literal["PluginResult"] = Field(description="What this is.")
    status: Status = Field(description="The proposals.")
