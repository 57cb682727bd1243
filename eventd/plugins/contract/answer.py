"""Decodes and checks the answer of a plugin, within limits of size and depth. A fault becomes a PluginFailed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from pydantic import ValidationError

from eventd.plugins.contract.contract import PluginFailed, Result
from eventd.plugins.contract.form import ActionPlan, Answer, Directive, Form, ProposedResource, Status, read_time
from eventd.resources.kinds.registry import KINDS, is_foreign, is_ours, known_kinds
from eventd.resources.reading.nodes import MAX_DEPTH, MAX_VALUES, Flaws, ParseError, plain
from eventd.resources.reading.problems import render_path, shorten
from eventd.resources.validation.wording import findings
from eventd.text.duration import format_duration, parse_duration
from federation.event import is_plain

MAX_TEXT: Final = 8 << 20
"""Maximum characters of all texts and keys of an answer, aliases expanded: a kilobyte of YAML can become a gigabyte."""
_LONGEST: Final = 300
_ONE: Final = "write one PluginResult and nothing else; write messages for people to standard error"
_NEEDED: Final = {
    "resources": "propose.dynamicConfig",
    "directives": "propose.dynamicConfig",
    "actionPlans": "propose.providerAction",
}
_EMITTING: Final = frozenset(("emit.events", "observe.cloud", "observe.providerPrivateIPs", "propose.dynamicConfig"))
"""Any one of these capabilities allows a plugin to emit events: proposing configuration or observing implies it."""


class _Refused(Exception):
    """An answer cannot be used. `reason` is `undecodable`, or `refused` if the answer was decoded."""

    def __init__(self, reason: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.reason, self.message, self.hint = reason, message, hint


def read_answer(stdout: bytes, *, now: int) -> Result:
    """Return the result in the PluginResult that an executable wrote, as JSON or YAML. Raises PluginFailed.

    `now`, in microseconds, replaces an absent `observedAt`. Capabilities are not checked here.
    """
    try:
        value = decode(stdout)
        return _result(_read(Answer, value).status, value["status"], now)
    except _Refused as refused:
        raise _failure(refused) from None


def read_status(status: bytes, *, now: int, ttl: int) -> Result:
    """Return the result in the `status` that an entry point returned, as JSON. Raises PluginFailed.

    `now` and `ttl`, in microseconds, replace an absent `observedAt` and `ttl`. Capabilities are not checked here.
    """
    try:
        value = decode(status)
        if value.get("ttl") is None:
            value["ttl"] = format_duration(ttl)
        return _result(_read(Status, value, "status"), value, now)
    except _Refused as refused:
        raise _failure(refused) from None


def _failure(refused: _Refused) -> PluginFailed:
    return PluginFailed(shorten(refused.message, _LONGEST), hint=shorten(refused.hint, _LONGEST), reason=refused.reason)


# --- from bytes to values -----------------------------------------------------------------------------------------


def decode(stdout: bytes) -> dict[str, Any]:
    """Return an answer, JSON or YAML, as the one mapping that it must be, with checked values. Raises _Refused."""
    if not stdout.strip():
        raise _Refused("undecodable", "the plugin wrote nothing to its standard output", "it must write a PluginResult")
    value = _decode(stdout)
    if not isinstance(value, dict):
        raise _Refused("undecodable", "the plugin's output is not a mapping", _ONE)
    check_values(value)
    return value


def _decode(stdout: bytes) -> Any:
    try:
        text = stdout.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"the plugin's output is not text: byte {error.start} is not UTF-8"
        raise _Refused("undecodable", message) from None
    try:
        return _JSON.decode(text)
    except (ValueError, RecursionError):  # it may be YAML, whose parser reports the line of the fault
        return _read_yaml(text)


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_JSON: Final = json.JSONDecoder(object_pairs_hook=_unrepeated, parse_constant=_refuse_constant)


def _read_yaml(text: str) -> Any:
    flaws = Flaws()
    from eventd.resources.reading.yaml_text import read_yaml  # slow to load, and most plugins answer in JSON

    documents = read_yaml(text, flaws)
    try:
        node, another = next(documents, None), next(documents, None)
    except ParseError as error:
        message = f"the plugin's output cannot be read as JSON or YAML: line {error.line}: {error.message}"
        raise _Refused("undecodable", message) from None
    if flaws:
        raise _Refused("undecodable", f"the plugin's output, line {flaws[0].line}: {flaws[0].message}")
    if another is not None:
        message = f"the plugin's output continues after its first document, on line {another.line}"
        raise _Refused("undecodable", message, _ONE)
    return None if node is None else plain(node)


def check_values(value: Any) -> None:
    """Raise _Refused for values that databases or JSON readers reject, and for too much depth or size."""
    level: list[Any] = [value]
    values = characters = 0
    for _ in range(MAX_DEPTH):
        following: list[Any] = []
        for inner in level:
            if isinstance(inner, dict):
                following += inner.keys()
                following += inner.values()
            elif isinstance(inner, list):
                following += inner
            else:
                characters += _check_scalar(inner)
        values += len(following)
        if values > 2 * MAX_VALUES or characters > MAX_TEXT:
            message = f"the plugin's answer has more than {2 * MAX_VALUES} keys and values, or {MAX_TEXT} characters"
            raise _Refused("refused", f"{message}, aliases expanded", "propose less in one run")
        if not following:
            return
        level = following
    raise _Refused("refused", f"the plugin's answer is nested more than {MAX_DEPTH} levels deep")


def _check_scalar(value: Any) -> int:
    """Return the number of characters of a text, 0 for any other scalar. Raises _Refused for an unusable value."""
    if isinstance(value, str):
        if not is_plain(value):
            raise _Refused("refused", "the plugin's answer contains the character U+0000 or half of a surrogate pair")
        return len(value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise _Refused("refused", "the plugin's answer contains a whole number outside the signed 64-bit range")
    if isinstance(value, float) and value - value != 0:
        raise _Refused("refused", "the plugin's answer contains a number that is not finite")
    return 0


# --- from values to a result --------------------------------------------------------------------------------------


def _read(form: type[Form], value: Mapping[str, Any], place: str = "") -> Any:
    try:
        return form.model_validate(value)
    except ValidationError as error:
        first = next(findings(error, form))
        path = render_path(((place,) if place else ()) + first.path[1:])
        raise _Refused("refused", f"the plugin's answer: {path} {first.message}", first.hint) from None


def _result(status: Status, written: Mapping[str, Any], now: int) -> Result:
    for index, resource in enumerate(status.resources):
        _check_kind(index, resource)
    resources = _distinct([_document(resource) for resource in status.resources])
    observed = read_time(status.observed_at) if status.observed_at else None
    return Result(
        observed_at=now if observed is None else observed,
        ttl=parse_duration(status.ttl),
        resources=resources,
        directives=[_directive(directive) for directive in status.directives],
        action_plans=[_plan(plan) for plan in status.action_plans],
        events=[dict(event) for event in written.get("events") or ()],
    )


def _distinct(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the resources without repetitions. Raises _Refused if two of them define one resource differently."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for index, document in enumerate(documents):
        identity = (document["apiVersion"], document["kind"], document["metadata"]["name"])
        if found.setdefault(identity, document) != document:
            message = (
                f"the plugin's answer: status.resources[{index}] defines {'/'.join(identity)} again with other content"
            )
            raise _Refused("refused", message, "propose each resource only once")
    return list(found.values())


def _check_kind(index: int, resource: ProposedResource) -> None:
    """Raise _Refused unless the kind is of another program, or is one of this program's in its apiVersion."""
    version, kind = resource.api_version, resource.kind
    known = KINDS.get(kind)
    if is_foreign(version, kind) or (known is not None and known.api_version == version):
        return
    place = f"the plugin's answer: status.resources[{index}]"
    if known is not None:
        raise _Refused("refused", f"{place}.apiVersion: {kind} is not known in {version}", f"write {known.api_version}")
    if not is_ours(version):
        raise _Refused("refused", f"{place} must have an apiVersion and a kind such as net.example/v1 and IPv4Route")
    raise _Refused("refused", f"{place}.kind {kind} is unknown in {version}", known_kinds(kind))


def _document(resource: ProposedResource) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": resource.metadata.name}
    if resource.metadata.owner_refs:
        metadata["ownerRefs"] = list(resource.metadata.owner_refs)
    if resource.metadata.annotations:
        metadata["annotations"] = dict(sorted(resource.metadata.annotations.items()))
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": resource.spec,
    }


def _directive(directive: Directive) -> dict[str, Any]:
    target = directive.target
    found: dict[str, Any] = {
        "op": directive.op,
        "target": {"apiVersion": target.api_version, "kind": target.kind, "name": target.name},
    }
    return {**found, "reason": directive.reason} if directive.reason else found


def _plan(plan: ActionPlan) -> dict[str, Any]:
    return plan.model_dump(mode="json", by_alias=True, exclude_unset=True)


# --- what a plugin may propose ------------------------------------------------------------------------------------


def check_capabilities(result: Result, capabilities: frozenset[str]) -> None:
    """Raise PluginFailed if the result has resources, directives, plans or events that `capabilities` do not allow."""
    for what, needed in _missing(result, capabilities):
        message = f"the plugin's answer contains {what}, but the plugin does not declare {needed}"
        hint = f"add {needed.partition(' or ')[0]} to spec.capabilities of the Plugin to permit that"
        raise PluginFailed(message, hint=hint, reason="capability")


def _missing(result: Result, capabilities: frozenset[str]) -> Iterator[tuple[str, str]]:
    held = {"resources": result.resources, "directives": result.directives, "actionPlans": result.action_plans}
    for what, needed in _NEEDED.items():
        if held[what] and needed not in capabilities:
            yield what, needed
    if result.events and not capabilities & _EMITTING:
        yield "events", "emit.events"
