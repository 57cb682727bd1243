"""What the audit is held against: objectives of delivery, and conditions on which a run fails."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.report import Pair, Slo, Totals
from eventd.errors import Invalid
from eventd.resources.kinds.federation_slo import LAG_FAIL, LAG_WARN, FederationSloSpec
from eventd.resources.reading.documents import read_sources
from eventd.resources.validation.check import check_draft
from eventd.resources.validation.resource import Resource

ANY: Final = ""
"""The group whose objective holds for all that have none."""
UNPROVEN: Final = "unproven"
"""The condition that the books do not reach far enough to call them complete."""
_SHARE: Final = re.compile(r"completeness\s*<\s*(\d{1,3}(?:\.\d+)?)\s*%?")


class Objective(NamedTuple):
    """How late deliveries may be, in seconds: from `warn` on it is worth saying, beyond `fail` it is missed."""

    warn: int = LAG_WARN
    fail: int = LAG_FAIL


Objectives = Mapping[str, Objective]
"""By group."""


def read_objectives(path: str | None) -> dict[str, Objective]:
    """The objectives of the FederationSLO documents of a file or folder; the defaults for groups without one.

    Raises Invalid with file and line for what is none.
    """
    found = {ANY: Objective()}
    if path is None:
        return found
    loaded = read_sources([path])
    problems = list(loaded.problems)
    for draft in loaded.drafts:
        checked = check_draft(draft)
        if isinstance(checked, list):
            problems += checked
        elif isinstance(checked, Resource) and isinstance(checked.spec, FederationSloSpec):
            bounds, group = checked.spec.delivery, checked.spec.group_ref
            if group in found:
                message = f"group {group} has another FederationSLO already"
                problems.append(draft.problem(("spec", "groupRef"), message, "a group has one"))
            found[group] = Objective(bounds.lag_warn_seconds, bounds.lag_fail_seconds)
    if problems:
        first = min(problems)
        place = f"{first.source}:{first.line}: " if first.line else f"{first.source}: "
        raise Invalid(f"{place}{f'{first.path}: ' if first.path else ''}{first.message}", hint=first.hint)
    if len(found) == 1:
        raise Invalid(f"{path} holds no FederationSLO", hint="a FederationSLO names a group and its bounds of delivery")
    return found


def objective_of(objectives: Objectives, group: str) -> Objective:
    """The objective of a group."""
    return objectives.get(group) or objectives[ANY]


def judge_pair(pair: Pair, objective: Objective, *, late: int, sure: bool) -> Slo:
    """Whether a pair kept to its objective; `late` deliveries took longer than it allows.

    Where the books do not reach (`sure` is False) an objective can be missed, but not met.
    """
    waited = pair.lag or 0.0
    reasons = [
        f"{pair.missing:,} missing" if pair.missing else "",
        f"{pair.disputed:,} disputed" if pair.disputed else "",
        f"{late:,} took longer than {objective.fail} s" if late else "",
        f"one waits for {waited:,.0f} s, longer than {objective.fail} s" if waited > objective.fail else "",
    ]
    if told := "; ".join(filter(None, reasons)):
        return Slo(verdict="missed", reason=told, late=late)
    if not sure:
        return Slo(verdict="unproven", reason="the books do not reach far enough")
    longest = pair.latencies.delivered.max
    if longest is None:
        return Slo(verdict="met", reason="nothing was due")
    slow = f", and more than the {objective.warn} s to be warned of" if longest > objective.warn else ""
    return Slo(verdict="met", reason=f"the slowest took {longest:.3g} s of {objective.fail} s{slow}")


class Condition(NamedTuple):
    """A reason to fail: a kind of finding, a share that is not reached, or books that do not reach far enough.

    `text` is how it was asked for.
    """

    text: str
    kind: Kind | None = None
    share: float | None = None

    def is_met(self, totals: Totals, findings: Iterable[Finding]) -> bool:
        """Whether the run fails by it. A share that cannot be proven is not reached.

        Books that do not reach far enough may hide a loss, whatever else was found: a verdict of `incomplete` does not
        keep a run from failing on `unproven`.
        """
        if self.text == UNPROVEN:
            return totals.completeness is None
        if self.share is not None:
            return totals.completeness is None or totals.completeness < self.share
        return any(finding.kind is self.kind for finding in findings)


def read_conditions(texts: Sequence[str]) -> list[Condition]:
    """What `--fail-on` asks for: kinds of findings, `unproven`, `completeness<99.99`, also several with commas between.

    Raises Invalid.
    """
    return [_condition(part) for text in texts for part in _parts(text)]


def _parts(text: str) -> list[str]:
    """What stands between the commas. Nothing at all is what an unset variable gives, and no condition."""
    return [part.strip() for part in text.split(",") if part.strip()] or [""]


def _condition(text: str) -> Condition:
    if text in set(Kind):
        return Condition(text, kind=Kind(text))
    if text == UNPROVEN:
        return Condition(text)
    share = _SHARE.fullmatch(text)
    if share is not None and float(share[1]) <= 100:
        return Condition(text, share=float(share[1]))
    known = ", ".join([*Kind, UNPROVEN])
    raise Invalid(
        f"--fail-on {text or 'without a word'} is no condition", hint=f"one of {known}, or completeness<99.99"
    )
