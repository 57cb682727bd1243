"""Small parts and resources for tests that need no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eventd.resources.plugin_configuration import PolicyRule
from eventd.resources.reading.documents import Identity
from eventd.store.parts.claims import ResourceKey, claims_of, masked_by, target_of
from eventd.store.parts.part import ClaimSpan, StoredPart
from eventd.store.rows.registry import StoredResource
from eventd.testing import NOW

NET = "net.routerd.net/v1alpha1"
HOUR = 3600_000_000


def key(name: str) -> ResourceKey:
    return ResourceKey(NET, "IPv4Route", name)


def route(name: str, about: str = "", **spec: Any) -> dict[str, Any]:
    annotations = {"annotations": {"routerd.net/for-subject": about}} if about else {}
    return {"apiVersion": NET, "kind": "IPv4Route", "metadata": {"name": name, **annotations}, "spec": spec}


def mask(name: str, *, op: str = "mask", reason: str = "") -> dict[str, Any]:
    target = {"apiVersion": NET, "kind": "IPv4Route", "name": name}
    return {"op": op, "target": target, **({"reason": reason} if reason else {})}


def declared(name: str, kind: str = "IPv4Route", api_version: str = NET, **spec: Any) -> StoredResource:
    return StoredResource(api_version, kind, name, {}, spec, 1, NOW, NOW)


def allow(source: str, *names: str) -> PolicyRule:
    return PolicyRule(source, frozenset({"mask"}), frozenset(Identity(*key(name)) for name in names))


def stored_part(
    source: str,
    resources: Sequence[Mapping[str, Any]] = (),
    *,
    directives: Sequence[Mapping[str, Any]] = (),
    plans: Sequence[Mapping[str, Any]] = (),
    since: int | Mapping[str, int] = NOW,
    expires: int = NOW + HOUR,
    ends: Mapping[str, int] | None = None,
    subjects: Sequence[str] = (),
    problem: str = "",
) -> StoredPart:
    """A part; everything but its last segment is its owner. `since` may differ by the name of a resource."""
    made = claims_of(resources, directives, ends=ends or {}, subjects=subjects, expires_at=expires)
    ages = since if isinstance(since, Mapping) else {}
    claims = {
        found: ClaimSpan(ages.get(found.name, since if isinstance(since, int) else NOW), claim.ends_at)
        for found, claim in made.items()
        if masked_by(found) is None
    }
    return StoredPart(
        owner=source.rsplit("/", 1)[0] if source.count("/") > 1 else source,
        source=source,
        group="edge",
        plugin="p",
        observed_at=NOW,
        expires_at=expires,
        digest="",
        resources=resources,
        directives=directives,
        action_plans=plans,
        subjects=subjects,
        ends=ends or {},
        id=1,
        generation=1,
        ends_at=max([claim.ends_at for claim in made.values()], default=expires),
        claims=claims,
        masks=frozenset(map(target_of, directives)),
        revision=1,
        created_at=NOW,
        updated_at=NOW,
        problem=problem,
    )
