"""Which resources a part claims to define or to mask, and for how long. Pure.

A resource of a part is identified by its key. It ends with its part, or earlier with the subject that it is about.
Masking a declared resource is a claim too: the next part of the same owner that masks the resource takes the claim
over.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

FOR_SUBJECT = "routerd.net/for-subject"
"""The annotation of a resource that is about the events of one subject only."""
CAPTURING_KIND = "RemoteAddressClaim"
UNREADABLE = "?"
"""The text that stands for a captured address that cannot be read."""


_MASKING = "mask "
"""The prefix of the stored apiVersion of a masking claim; that of a resource contains no blank."""


class ResourceKey(NamedTuple):
    """The apiVersion, kind and name that identify a resource; as a text, `kind/name`."""

    api_version: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def masking(target: ResourceKey) -> ResourceKey:
    """Return the key under which masking a resource is claimed."""
    return target._replace(api_version=f"{_MASKING}{target.api_version}")


def masked_by(key: ResourceKey) -> ResourceKey | None:
    """Return the resource that the claim with this key masks; None if it is a claim to define a resource."""
    version = key.api_version
    return key._replace(api_version=version.removeprefix(_MASKING)) if version.startswith(_MASKING) else None


def target_of(directive: Any) -> ResourceKey:
    """Return the key of the resource that a directive is about; its fields are empty if it names none."""
    target = _member(directive if isinstance(directive, Mapping) else {}, "target")
    return ResourceKey(*(str(target.get(name, "")) for name in ("apiVersion", "kind", "name")))


class ResourceClaim(NamedTuple):
    """A claim of a part: when its resource ends, in microseconds, and the address that `captured_by` returns."""

    ends_at: int
    captures: str


def key_of(resource: Mapping[str, Any]) -> ResourceKey:
    """Return the key of a resource; a field that is missing is empty."""
    name = _member(resource, "metadata").get("name")
    texts = (resource.get("apiVersion"), resource.get("kind"), name)
    return ResourceKey(*(text if isinstance(text, str) else "" for text in texts))


def _member(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = value.get(name)
    return inner if isinstance(inner, Mapping) else {}


def subject_of(resource: Mapping[str, Any]) -> str:
    """Return the subject that a resource is about; empty for all subjects of its part."""
    subject = _member(_member(resource, "metadata"), "annotations").get(FOR_SUBJECT)
    return subject if isinstance(subject, str) else ""


def claims_of(
    resources: Iterable[Mapping[str, Any]],
    directives: Iterable[Mapping[str, Any]],
    *,
    ends: Mapping[str, int],
    subjects: Collection[str],
    expires_at: int,
) -> dict[ResourceKey, ResourceClaim]:
    """Return the claims of a part, by key. A resource about a subject ends as `ends` says, at the latest with the part.

    Masks, and resources about no single subject, end at `end_of_rest`.
    """
    rest = end_of_rest(ends=ends, subjects=subjects, expires_at=expires_at)
    claims = {masking(target_of(directive)): ResourceClaim(rest, "") for directive in directives}
    for resource in resources:
        subject = subject_of(resource)
        end = min(expires_at, ends[subject]) if subject in ends else expires_at if subject else rest
        claims[key_of(resource)] = ResourceClaim(end, captured_by(resource))
    return claims


def end_of_rest(*, ends: Mapping[str, int], subjects: Collection[str], expires_at: int) -> int:
    """Return when those resources of a part end that are about no single subject.

    They end with the subject that ends last, or with the part if it has no subjects or one of them has no end.
    """
    known = set(subjects)
    if not known or not known <= ends.keys():
        return expires_at
    return min(expires_at, max(ends[subject] for subject in known))


def captured_by(resource: Mapping[str, Any]) -> str:
    """Return the address that a resource captures, without prefix length; empty for none, `?` if it cannot be read."""
    if resource.get("kind") != CAPTURING_KIND:
        return ""
    spec = _member(resource, "spec")
    capture = spec.get("capture")
    how = capture.get("type") if isinstance(capture, Mapping) else capture
    if how is None or (isinstance(how, str) and not how.strip()):
        return ""
    return host_address(spec.get("address")) or UNREADABLE


def host_address(text: object) -> str:
    """Return the canonical address in `10.88.60.9/32` or `10.88.60.9`; empty if there is none.

    Lenient, because two spellings of one address must be recognised as equal. Prefix length and zone are ignored, and
    so are leading zeros.
    """
    if not isinstance(text, str):
        return ""
    host = text.partition("/")[0].partition("%")[0].strip()
    try:
        address = ipaddress.ip_address(_without_zeros(host))
    except ValueError:
        return ""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _without_zeros(host: str) -> str:
    """Return `10.77.60.10` for `010.077.060.010`, also at the end of an IPv6 address; other texts unchanged."""
    before, colon, dotted = host.rpartition(":")
    if "." not in dotted:
        return host
    return before + colon + ".".join(number.lstrip("0") or number[-1:] for number in dotted.split("."))
