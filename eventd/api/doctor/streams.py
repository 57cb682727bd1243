"""Checks tenants of streams, and caches: key sets that cannot be read, tenants without keys, caches without a tenant.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from eventd.api.doctor.report import Check, CheckStatus
from eventd.resources.stream_configuration import CacheSpec, StreamTenantConfig
from eventd.resources.stream_key_state import TenantKeyState
from eventd.settings.model import Settings
from eventd.streams.names import CacheName
from eventd.text.duration import SECOND, brief_duration
from eventd.text.plural import counted

STALE_SECONDS: Final = 2 * 3600.0
"""Age of the keys from a URL from which they are stale: a key that was revoked since is still valid."""


def check_streams(
    tenants: Mapping[str, StreamTenantConfig],
    caches: Mapping[CacheName, CacheSpec],
    states: Iterable[TenantKeyState],
    settings: Settings | None,
) -> Iterator[Check]:
    """Yield a check for each tenant and each finding. `states` are those of a running node; a command has none."""
    known: dict[str, list[TenantKeyState]] = {}
    for state in states:
        known.setdefault(state.tenant, []).append(state)
    for name, tenant in tenants.items():
        yield from _tenant(tenant, known.get(name, []), is_running=settings is not None)
    for cache in caches:
        if tenants and cache.tenant not in tenants:
            yield _cache_without_tenant(cache)
    if settings is not None and settings.quic_listen is None and caches:
        yield Check(
            "caches",
            CheckStatus.WARN,
            "cache-no-listener",
            f"{counted(len(caches), 'cache')} declared, and nothing listens for clients",
            "set `quic_listen` and restart the node, or delete the StreamCache resources",
        )


def _tenant(tenant: StreamTenantConfig, states: list[TenantKeyState], *, is_running: bool) -> Iterator[Check]:
    subject = f"tenant {tenant.name}"
    findings = [finding for state in states for finding in _source(subject, state)]
    yield from findings
    if not is_running:
        return
    usable = len(tenant.keys) + sum(state.keys for state in states if _verifies(state))
    if not usable and any(state.age is None and not state.problem for state in states):
        yield Check(subject, CheckStatus.SKIP, detail="its keys have not been read yet")
    elif not usable:
        yield Check(
            subject,
            CheckStatus.FAIL,
            "tenant-no-keys",
            "the tenant has no usable key: none of its tokens is accepted",
            "add a key of the type OKP with the curve Ed25519 to its key set",
        )
    elif not findings:
        yield Check(subject, CheckStatus.PASS, detail=f"{counted(usable, 'key')}")


def _verifies(state: TenantKeyState) -> bool:
    """Return whether keys of this source verify stream tokens."""
    return not state.field.startswith("exchange.jwks")


def _source(subject: str, state: TenantKeyState) -> Iterator[Check]:
    if state.problem:
        status, code, known = CheckStatus.FAIL, "tenant-keys-unreadable", "it was never read"
        if state.age is not None:
            is_stale = state.age >= STALE_SECONDS
            status, code = CheckStatus.WARN, "tenant-keys-stale" if is_stale else "tenant-keys-unreadable"
            known = f"in use: {counted(state.keys, 'key')}, read {brief_duration(round(state.age) * SECOND)} ago"
        problem = state.problem.removeprefix(f"{state.source}: ")  # a file's begins with its path
        detail = f"{state.field} {state.source}: {problem}; {known}"
        yield Check(subject, status, code, detail, _remedy(state))
    for problem in state.skipped:
        yield Check(
            subject,
            CheckStatus.WARN,
            "tenant-key-unusable",
            f"{state.field} {state.source}: {problem}",
            "correct the key, or take it out of the set",
        )


def _remedy(state: TenantKeyState) -> str:
    if state.field.endswith("jwksURL"):
        return (
            f"correct `{state.field}` or what answers there; a private address must be in `callback_allow`; the node"
            " tries again every minute"
        )
    return "correct the file, its owner or its mode; the node reads it again within a second"


def _cache_without_tenant(cache: CacheName) -> Check:
    return Check(
        f"cache {'/'.join(cache)}",
        CheckStatus.WARN,
        "cache-no-tenant",
        f"the tenant {cache.tenant} is not declared: only keys of the API can use the cache",
        "apply a StreamTenant of this name, or correct `tenant` of the StreamCache",
    )
