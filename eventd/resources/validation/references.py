"""Validates resources against each other: missing resources, names and addresses in use, required keys.

The rules read the specs as written, so one wrong field does not hide a problem between two resources. A problem is
reported at a resource of the input, never at a stored one that stays unchanged.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eventd.resources.kinds.registry import (
    DYNAMIC_CONFIG_SOURCE,
    EVENT_CALLBACK,
    EVENT_GROUP,
    EVENT_PEER,
    EVENT_SUBSCRIPTION,
    FEDERATION_SLO,
    PLUGIN,
    STREAM_CACHE,
    TOPIC,
    TOPIC_ROUTER,
    Kind,
)
from eventd.resources.reading.documents import Draft
from eventd.resources.reading.problems import FieldPath, Problem, shorten
from eventd.store.rows.registry import StoredResource
from eventd.streams.names import DEFAULT
from eventd.text.did_you_mean import did_you_mean
from eventd.text.topic_names import GROUP_PREFIX
from federation.peers import ANY, PROTOCOL_V1, PROTOCOL_V2

_EVERY = ("0.0.0.0", "::")
_MOST_COMPARED = 1_000
"""With more declared names than this, no name is suggested for a wrong one: each comparison takes ten microseconds."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A field of the kind `of` that names a declared resource of the kind `to`.

    Only texts with the `prefix` name a resource; the prefix is not part of the name. `required`: the resource must be
    declared.
    """

    of: Kind
    path: tuple[str, ...]
    to: Kind
    prefix: str = ""
    required: bool = True

    def name_in(self, resource: PlannedResource) -> str:
        """Return the name of the resource that another one refers to; empty if it refers to none."""
        text = resource.text(*self.path)
        return text.removeprefix(self.prefix) if text.strip() and text.startswith(self.prefix) else ""


REFERENCES = (
    Reference(EVENT_PEER, ("groupRef",), EVENT_GROUP),
    Reference(EVENT_SUBSCRIPTION, ("groupRef",), EVENT_GROUP),
    Reference(EVENT_SUBSCRIPTION, ("trigger", "pluginRef"), PLUGIN),
    Reference(EVENT_CALLBACK, ("source", "groupRef"), EVENT_GROUP),
    Reference(FEDERATION_SLO, ("groupRef",), EVENT_GROUP),
    Reference(DYNAMIC_CONFIG_SOURCE, ("pluginRef",), PLUGIN),
    Reference(TOPIC_ROUTER, ("source",), EVENT_GROUP, GROUP_PREFIX),
    Reference(TOPIC_ROUTER, ("dest",), EVENT_GROUP, GROUP_PREFIX),
    Reference(TOPIC_ROUTER, ("source",), TOPIC, required=False),
    Reference(TOPIC_ROUTER, ("dest",), TOPIC, required=False),
    Reference(EVENT_CALLBACK, ("source", "topic"), TOPIC, required=False),
)


@dataclass(frozen=True, slots=True)
class PlannedResource:
    """A resource as it will be after the change: from a draft, or a stored one that stays, whose `draft` is None."""

    kind: str
    name: str
    spec: dict[str, Any]
    draft: Draft | None = None

    def text(self, *path: str) -> str:
        """Return the text at a path of the spec; empty if it is absent or not text."""
        value = self._at(path)
        return value if isinstance(value, str) else ""

    def list(self, *path: str) -> list[Any]:
        """Return the list at a path of the spec; empty if it is absent or not a list."""
        value = self._at(path)
        return value if isinstance(value, list) else []

    def number(self, *path: str) -> int:
        """Return the whole number at a path of the spec; 0 if it is absent or not a whole number."""
        value = self._at(path)
        return value if isinstance(value, int) else 0

    def _at(self, path: Iterable[str]) -> Any:
        value: Any = self.spec
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        return value


@dataclass(frozen=True, slots=True)
class _ReportPlace:
    """A field where a problem can be reported, and the message to report there."""

    at: PlannedResource
    path: FieldPath
    message: str
    hint: str = ""


def check(drafts: Sequence[Draft], stored: Sequence[StoredResource], *, complete: bool) -> Iterator[Problem]:
    """Yield problems between the drafts, and between them and stored resources that stay.

    Without `complete` a part of the input could not be read, so no resource is reported as not declared.
    """
    groups = {group.name: group for group in _declared(EVENT_GROUP, drafts, stored)}
    peers = _declared(EVENT_PEER, drafts, stored)
    if complete:
        yield from _missing(drafts, stored)
    yield from _second_slos(_declared(FEDERATION_SLO, drafts, stored))
    yield from _second_caches(_declared(STREAM_CACHE, drafts, stored))
    yield from _taken_names(groups, peers)
    yield from _other_pins(groups, peers)
    yield from _taken_addresses(list(groups.values()))
    yield from _needed_keys(groups, peers)
    yield from _protocols(groups, peers)


def _declared(kind: Kind, drafts: Sequence[Draft], stored: Sequence[StoredResource]) -> list[PlannedResource]:
    """Return the resources of a kind: stored ones that stay unchanged, then the drafts in order."""
    declared: dict[str, PlannedResource] = {}
    for draft in drafts:
        identity = draft.identity
        if identity and (identity.api_version, identity.kind) == (kind.api_version, kind.name):
            spec = draft.data.get("spec")
            spec = spec if isinstance(spec, dict) else {}
            declared.setdefault(identity.name, PlannedResource(kind.name, identity.name, spec, draft))
    untouched = [
        PlannedResource(kind.name, row.name, dict(row.spec))
        for row in stored
        if (row.api_version, row.kind) == (kind.api_version, kind.name) and row.name not in declared
    ]
    return [*untouched, *declared.values()]


def _report(*places: _ReportPlace) -> Iterator[Problem]:
    """Yield one problem, at the first of `places` that is in a draft; none if all places are in stored resources."""
    for place in places:
        if place.at.draft is not None:
            yield place.at.draft.problem(("spec", *place.path), place.message, place.hint)
            return


def _missing(drafts: Sequence[Draft], stored: Sequence[StoredResource]) -> Iterator[Problem]:
    for reference in REFERENCES:
        if not reference.required:
            continue
        known = {target.name for target in _declared(reference.to, drafts, stored)}
        for one in _declared(reference.of, drafts, stored):
            ref = reference.name_in(one)
            if ref and ref not in known:
                meant = did_you_mean(shorten(ref), known) if len(known) <= _MOST_COMPARED else ""
                hint = meant or "declare it in the same input, or apply it first"
                yield from _report(
                    _ReportPlace(one, reference.path, f"{reference.to.name} {ref} is not declared", hint)
                )


def referring(name: str, kind: Kind, stored: Iterable[StoredResource]) -> list[StoredResource]:
    """Return the stored resources that refer to the resource `name` of a kind, sorted by kind and name."""
    found = [
        row
        for row in stored
        for reference in REFERENCES
        if (reference.to, reference.of.name) == (kind, row.kind)
        and reference.name_in(PlannedResource(row.kind, row.name, dict(row.spec))) == name
    ]
    return sorted({(row.kind, row.name): row for row in found}.values(), key=lambda row: (row.kind, row.name))


def users_by_name(kind: Kind, stored: Iterable[StoredResource]) -> dict[str, list[StoredResource]]:
    """Return a mapping from the name of each resource of a kind to the stored resources that refer to it.

    For many names this is faster than `referring`.
    """
    users: dict[str, list[StoredResource]] = {}
    into = [reference for reference in REFERENCES if reference.to is kind]
    for row in stored:
        planned = PlannedResource(row.kind, row.name, dict(row.spec))
        names = [reference.name_in(planned) for reference in into if reference.of.name == row.kind]
        for name in dict.fromkeys(names):
            users.setdefault(name, []).append(row)
    return users


def _second_slos(slos: list[PlannedResource]) -> Iterator[Problem]:
    """Yield a problem for each further FederationSLO of a group: it would be undefined which of them applies."""
    first: dict[str, PlannedResource] = {}
    for slo in slos:
        ref = slo.text("groupRef")
        other = first.setdefault(ref, slo)
        if ref and other is not slo:
            message = f"group {ref} already has FederationSLO/{other.name}"
            yield from _report(_ReportPlace(slo, ("groupRef",), message, "a group can have only one"))


def _second_caches(caches: list[PlannedResource]) -> Iterator[Problem]:
    """Yield a problem for each further declaration of a cache: it would be undefined which limits apply."""
    first: dict[tuple[str, ...], PlannedResource] = {}
    for cache in caches:
        name = (cache.text("tenant"), *(cache.text(part) or DEFAULT for part in ("namespace", "name")))
        other = first.setdefault(name, cache)
        if name[0] and other is not cache:
            message = f"{'/'.join(name)} already is StreamCache/{other.name}"
            yield from _report(_ReportPlace(cache, ("name",), message, "change that one, or name another cache"))


def _taken_names(groups: dict[str, PlannedResource], peers: list[PlannedResource]) -> Iterator[Problem]:
    first: dict[tuple[str, str], PlannedResource] = {}
    for peer in peers:
        ref, node = peer.text("groupRef"), peer.text("nodeName")
        if not ref or not node:
            continue
        other = first.setdefault((ref, node), peer)
        if other is not peer:
            message = f"EventPeer/{other.name} already is node {node} of group {ref}"
            yield from _report(_ReportPlace(peer, ("nodeName",), message))
        if ref in groups and node == groups[ref].text("nodeName"):
            message = f"{node} is this node in group {ref}"
            hint = f"EventPeer/{peer.name} would make the node send to itself"
            yield from _report(
                _ReportPlace(peer, ("nodeName",), message, "name another node"),
                _ReportPlace(groups[ref], ("nodeName",), f"{node} is also the node of EventPeer/{peer.name}", hint),
            )


def _other_pins(groups: dict[str, PlannedResource], peers: list[PlannedResource]) -> Iterator[Problem]:
    """Yield a problem for each key of a history that a peer declares and its group declares differently."""
    for peer in peers:
        group, node = groups.get(peer.text("groupRef")), peer.text("nodeName")
        if group is None:
            continue
        for at, keys in enumerate(group.list("history", "keys")):
            for name in ("logKey", "witnessKey") if isinstance(keys, dict) and keys.get("node") == node else ():
                mine, other = _public_part(peer.text("history", name)), _public_part(keys.get(name))
                if mine and other and mine != other:
                    hint = "leave out the wrong one"
                    there = f"EventGroup/{group.name} declares another one of {node}"
                    here = f"EventPeer/{peer.name} declares another one of {node}"
                    yield from _report(
                        _ReportPlace(peer, ("history", name), there, hint),
                        _ReportPlace(group, ("history", "keys", at, name), here, hint),
                    )


def _public_part(key: Any) -> str:
    """Return the part of a verifier key that all trees have in common that are signed with it."""
    return key.rpartition("+")[2] if isinstance(key, str) else ""


def _taken_addresses(groups: list[PlannedResource]) -> Iterator[Problem]:
    there: dict[tuple[int, str], dict[str, PlannedResource]] = {}  # by port and address; "": all groups of the port
    for group in groups:
        port = group.number("listen", "port")
        if not port or not _listens(group):
            continue
        addresses = _addresses(group)
        clashing = {""} if not addresses.isdisjoint(_EVERY) else addresses.union(_EVERY)
        others = {name: one for at in clashing for name, one in there.get((port, at), {}).items()}
        for one in others.values():
            yield from _report(_clash(group, one), _clash(one, group))
        for at in (*addresses, ""):
            there.setdefault((port, at), {})[group.name] = group


def _listens(group: PlannedResource) -> bool:
    return bool(group.text("listen", "address").strip())


def _addresses(group: PlannedResource) -> set[str]:
    address = group.text("listen", "address").strip().lower()
    if address == "localhost":
        return {"127.0.0.1", "::1"}
    try:
        return {str(ipaddress.ip_address(address))}
    except ValueError:
        return {address}


def _clash(at: PlannedResource, other: PlannedResource) -> _ReportPlace:
    taken = f"{other.text('listen', 'address')} port {other.number('listen', 'port')}"
    message = f"EventGroup/{other.name} already listens on {taken}"
    return _ReportPlace(at, ("listen", "port"), message, "each group needs an address or a port of its own")


def _needed_keys(groups: dict[str, PlannedResource], peers: list[PlannedResource]) -> Iterator[Problem]:
    for group in groups.values():
        members = [peer for peer in peers if peer.text("groupRef") == group.name]
        uses = ["the group listens"] if _listens(group) else []
        uses += [f"EventPeer/{peer.name} belongs to the group" for peer in members]
        if uses and not group.text("auth", "secretFile").strip():
            yield from _report(*_key_places(group, members, uses[0]))


def _key_places(group: PlannedResource, members: list[PlannedResource], use: str) -> Iterator[_ReportPlace]:
    """Yield the fields at which to report that a group cannot sign; none if the group can. `use`: why it must sign."""
    keys, node = group.list("auth", "keys"), group.text("nodeName")
    if any(isinstance(key, dict) and _signs(key, node) for key in keys):
        return
    if keys:
        message = f"contain no active key of this node, {node}, so it could not sign: {use}"
        yield _ReportPlace(group, ("auth", "keys"), message, "add one, or write auth.secretFile")
        lacks = f"EventGroup/{group.name} has no active key of its own node"
    else:
        yield _ReportPlace(group, ("auth", "secretFile"), f"is required: {use}", "or write auth.keys")
        lacks = f"EventGroup/{group.name} has neither auth.secretFile nor auth.keys"
    for peer in members:
        yield _ReportPlace(peer, ("groupRef",), f"{lacks}, so nothing could be sent", "give the group a key first")


def _signs(key: dict[str, Any], node: str, algorithms: tuple[str, ...] = ("hmac-sha256", "ed25519")) -> bool:
    """Return whether this key is active, of one of these `algorithms`, and belongs to `node` or to all members."""
    owner = key.get("owner", key.get("node"))
    active = key.get("state", "active") == "active"
    return owner in (node, ANY) and active and key.get("algorithm", "hmac-sha256") in algorithms


def _protocols(groups: dict[str, PlannedResource], peers: list[PlannedResource]) -> Iterator[Problem]:
    for peer in peers:
        group, protocol = groups.get(peer.text("groupRef")), peer.text("protocol")
        if group is None or protocol not in (PROTOCOL_V1, PROTOCOL_V2):
            continue
        spoken = group.list("protocols") or [PROTOCOL_V1, PROTOCOL_V2]
        if protocol not in spoken:
            yield from _report(
                _ReportPlace(peer, ("protocol",), f"group {group.name} does not speak {protocol}"),
                _ReportPlace(group, ("protocols",), f"EventPeer/{peer.name} needs {protocol}"),
            )
        elif protocol == PROTOCOL_V1 and not _has_shared_secret(group):
            message = f"v1 needs a shared secret, and group {group.name} has none"
            yield from _report(
                _ReportPlace(peer, ("protocol",), message, "write auth.secretFile in the group"),
                _ReportPlace(group, ("auth", "secretFile"), f"is required: EventPeer/{peer.name} speaks v1"),
            )


def _has_shared_secret(group: PlannedResource) -> bool:
    keys = [key for key in group.list("auth", "keys") if isinstance(key, dict)]
    own = any(_signs(key, group.text("nodeName"), ("hmac-sha256",)) for key in keys)
    # _needed_keys reports a group without any key.
    return own or bool(group.text("auth", "secretFile").strip()) or not keys
