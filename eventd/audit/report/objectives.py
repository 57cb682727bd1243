"""Delivery objectives, and the conditions on which a run fails."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from eventd.audit.report.documents import read_documents, require_none
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.report import Pair, Slo, Totals
from eventd.errors import Invalid
from eventd.resources.kinds.federation_slo import LAG_FAIL, LAG_WARN, FederationSloSpec

ANY: Final = ""
"""The key in `Objectives` of the objective for all groups without their own."""
UNPROVEN: Final = "unproven"
"""The condition that the ledgers do not reach far enough to prove completeness."""
NEW: Final = "new"
"""The condition that there are findings that the baseline does not have."""
STALE: Final = "stale"
"""The condition that the ledgers of a node end too early: it is silent or behind, or its state is dated wrong."""
_WORDS: Final = (NEW, UNPROVEN, STALE)
_SHARE: Final = re.compile(r"completeness\s*<\s*(\d{1,3}(?:\.\d+)?)\s*%?")


class Objective(NamedTuple):
    """Bounds in seconds: a delivery or lag over `fail` misses the objective; a delivery over `warn` is noted."""

    warn: int = LAG_WARN
    fail: int = LAG_FAIL


Objectives = Mapping[str, Objective]
"""Objectives by group; the one under ANY is for all other groups."""


def read_objectives(path: str | None) -> dict[str, Objective]:
    """Return, by group, the objectives in the FederationSLO documents of a file or folder, and the default under ANY.

    Without a path, the default is the only one. Raises Invalid with file and line of an invalid document, or of a
    second FederationSLO for a group; also if the path holds no FederationSLO.
    """
    found = {ANY: Objective()}
    if path is None:
        return found
    problems = []
    for _, spec, draft in read_documents([path], FederationSloSpec):
        bounds, group = spec.delivery, spec.group_ref
        if group in found:
            message = f"group {group} has two FederationSLOs"
            problems.append(draft.problem(("spec", "groupRef"), message, "keep one"))
        found[group] = Objective(bounds.lag_warn_seconds, bounds.lag_fail_seconds)
    require_none(problems)
    if len(found) == 1:
        raise Invalid(
            f"{path} holds no FederationSLO", hint="add a FederationSLO with the group and its delivery bounds"
        )
    return found


def objective_of(objectives: Objectives, group: str) -> Objective:
    """Return the objective of a group: its own, or else the default."""
    return objectives.get(group) or objectives[ANY]


def judge_pair(pair: Pair, objective: Objective, *, late: int, sure: bool) -> Slo:
    """Return whether a pair met its objective, and why; `late` counts its deliveries slower than `objective.fail`.

    If the ledgers do not reach far enough (`sure` is False), the verdict is missed or unproven, never met.
    """
    waited = pair.lag or 0.0
    reasons = [
        f"{pair.missing:,} missing" if pair.missing else "",
        f"{pair.disputed:,} disputed" if pair.disputed else "",
        f"{late:,} took longer than {objective.fail} s" if late else "",
        f"one has been pending for {waited:,.0f} s, longer than {objective.fail} s" if waited > objective.fail else "",
    ]
    if reason := "; ".join(filter(None, reasons)):
        return Slo(verdict="missed", reason=reason, late=late)
    if not sure:
        return Slo(verdict="unproven", reason="the ledgers do not reach far enough")
    longest = pair.latencies.delivered.max
    if longest is None:
        return Slo(verdict="met", reason="no delivery was measured, and nothing is missing")
    slow = f", above the warning at {objective.warn} s" if longest > objective.warn else ""
    return Slo(verdict="met", reason=f"the slowest delivery took {longest:.3g} s of {objective.fail} s allowed{slow}")


class Condition(NamedTuple):
    """A condition on which a run fails: a kind of finding, a completeness below a share, or one of the words.

    `text` is how `--fail-on` names it.
    """

    text: str
    kind: Kind | None = None
    share: float | None = None

    def is_met(self, totals: Totals, findings: Iterable[Finding], *, stale: bool = False) -> bool:
        """Return whether the run fails on the condition. An unproven completeness is below every share.

        Ledgers that do not reach far enough may hide a loss: a run with the verdict `incomplete` can fail on `unproven`
        as well. `stale`: a node is silent or behind, or its state is dated wrong. `findings` are those that count.
        """
        if self.text == NEW:
            return any(finding.new for finding in findings)
        if self.text == UNPROVEN:
            return totals.completeness is None
        if self.text == STALE:
            return stale
        if self.share is not None:
            return totals.completeness is None or totals.completeness < self.share
        return any(finding.kind is self.kind for finding in findings)


def read_conditions(texts: Sequence[str]) -> list[Condition]:
    """Return the conditions in the values of `--fail-on`, which are separated by commas: kinds of findings, the words
    above, or `completeness<99.99`.

    Raises Invalid for an unknown or empty condition.
    """
    return [_condition(part) for text in texts for part in _parts(text)]


def _parts(text: str) -> list[str]:
    """Return the parts between commas, without empty ones.

    An empty text yields one empty part, so that it is refused (an unset variable must not mean no conditions).
    """
    return [part.strip() for part in text.split(",") if part.strip()] or [""]


def _condition(text: str) -> Condition:
    if text in set(Kind):
        return Condition(text, kind=Kind(text))
    if text in _WORDS:
        return Condition(text)
    share = _SHARE.fullmatch(text)
    if share is not None:
        if float(share[1]) > 100:
            raise Invalid(f"{text!r} is above 100 %", hint="write a share from 0 to 100: completeness<99.99")
        return Condition(text, share=float(share[1]))
    known = ", ".join([*Kind, *_WORDS])
    raise Invalid(f"{text!r} is not a condition", hint=f"write one of {known}, or completeness<99.99")
