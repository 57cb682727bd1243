"""The conditions of --fail-on."""

from __future__ import annotations

import pytest

from eventd.audit.report.findings import Discrepancy, Kind, group_findings
from eventd.audit.report.objectives import read_conditions
from eventd.audit.report.report import Totals
from eventd.errors import Invalid

(FOUND,) = group_findings([Discrepancy(Kind.MISSING, "g", "a", "b", 1, "e1")])


def test_a_kind_is_met_by_its_findings_and_a_share_by_a_lower_or_unknown_completeness() -> None:
    missing, share = read_conditions(["missing, completeness<99.99"])
    assert missing.is_met(Totals(), [FOUND])
    assert not missing.is_met(Totals(), [])
    assert share.is_met(Totals(completeness=99.9899), [])
    assert not share.is_met(Totals(completeness=99.99), [])
    assert share.is_met(Totals(completeness=None), []), "an unknown completeness is not reached"


def test_unproven_is_met_by_an_unknown_completeness_also_beside_findings() -> None:
    (unproven,) = read_conditions(["unproven,"])
    assert unproven.is_met(Totals(completeness=None), [FOUND]), "ledgers that end early may hide more than was found"
    assert not unproven.is_met(Totals(completeness=99.0), [FOUND])


@pytest.mark.parametrize("wrong", ["lost", "completeness<101", "completeness>5", "", " , "])
def test_other_words_are_not_conditions(wrong: str) -> None:
    with pytest.raises(Invalid, match=r"is not a condition|is above 100 %"):
        read_conditions([wrong])
