"""The service level objectives of groups, with every default filled in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eventd.resources.kinds.federation_slo import LAG_FAIL, LAG_WARN, FederationSloSpec
from eventd.resources.kinds.registry import FEDERATION_SLO
from eventd.resources.validation.resource import specs_of
from eventd.store.rows.registry import StoredResource


@dataclass(frozen=True, slots=True)
class SloConfig:
    """The service level objectives of a group. `lag_warn`, `lag_fail` and `expires_soon` in whole seconds."""

    group: str
    lag_warn: int
    lag_fail: int
    expires_soon: int
    max_pending_runs: int
    max_failed_runs: int


def slos(stored: Iterable[StoredResource]) -> dict[str, SloConfig]:
    """Return the objectives by group name. Raises Invalid for a row this program cannot read."""
    found = specs_of(stored, FEDERATION_SLO, FederationSloSpec)
    return {spec.group_ref: _slo(spec) for spec in found.values()}


def lag_limits(stored: Iterable[StoredResource], groups: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return for each group the seconds of lag from which its FederationSLO gives a warning, and from which a
    failure."""
    found = slos(stored)
    return {
        name: (found[name].lag_warn, found[name].lag_fail) if name in found else (LAG_WARN, LAG_FAIL) for name in groups
    }


def _slo(spec: FederationSloSpec) -> SloConfig:
    return SloConfig(
        group=spec.group_ref,
        lag_warn=spec.delivery.lag_warn_seconds,
        lag_fail=spec.delivery.lag_fail_seconds,
        expires_soon=spec.delivery.expires_soon_seconds,
        max_pending_runs=spec.subscription.max_pending_runs,
        max_failed_runs=spec.subscription.max_failed_runs,
    )
