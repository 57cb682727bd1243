"""Every alert fires when it should and not otherwise, as Prometheus itself evaluates the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.alert_rules import RULES, alerts, cases, write_promtool_tests
from tests.support.prometheus import promtool


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_is_silent() -> None:
    assert list(cases()) == list(alerts())
    for name, case in cases().items():
        assert case["firing"], name
        assert case["silent"], name
        assert case["firing"] != case["silent"], name
        assert ("pending" in case) is ("for" in alerts()[name]), f"{name}: when it waits"


@pytest.mark.prometheus
def test_prometheus_accepts_the_rules() -> None:
    output = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert "SUCCESS" in output


@pytest.mark.prometheus
def test_each_alert_fires_under_its_series_and_is_silent_under_the_others(tmp_path: Path) -> None:
    promtool("test", "rules", *write_promtool_tests(tmp_path))
