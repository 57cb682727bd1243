from __future__ import annotations

import pytest

from eventd.resources.slo_configuration import SloConfig, slos
from tests.unit.resources.samples import FEDERATION, GROUP, accepted, problems, rows

STORED = rows(GROUP)


def slo(spec: str = "{groupRef: edge}", name: str = "slo") -> str:
    """A FederationSLO; its spec stands on line 4."""
    return f"apiVersion: {FEDERATION}\nkind: FederationSLO\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def config(spec: str) -> SloConfig:
    return slos(rows(f"{GROUP}---\n{slo(spec)}"))["edge"]


def test_nothing_and_0_mean_the_default() -> None:
    default = SloConfig("edge", 60, 180, 120, 0, 0)
    assert config("{groupRef: edge}") == default
    zeroes = "delivery: {lagWarnSeconds: 0, lagFailSeconds: 0, expiresSoonSeconds: 0}"
    assert config(f"{{groupRef: edge, {zeroes}, subscription: {{maxPendingRuns: 0}}}}") == default
    [one], [other] = accepted(slo(), STORED), accepted(slo(f"{{groupRef: edge, {zeroes}}}"), STORED)
    assert one.means(other)


def test_what_is_written_takes_effect() -> None:
    delivery = "delivery: {lagWarnSeconds: 30, lagFailSeconds: 120, expiresSoonSeconds: 60}"
    told = config(f"{{groupRef: edge, {delivery}, subscription: {{maxPendingRuns: 5, maxFailedRuns: 1}}}}")
    assert told == SloConfig("edge", 30, 120, 60, 5, 1)


@pytest.mark.parametrize(
    ("delivery", "field", "warn", "fail"),
    [
        ("lagWarnSeconds: 200, lagFailSeconds: 0", "lagWarnSeconds", 200, 180),
        ("lagWarnSeconds: 180", "lagWarnSeconds", 180, 180),
        ("lagWarnSeconds: 0, lagFailSeconds: 30", "lagWarnSeconds", 60, 30),
        ("lagFailSeconds: 30", "lagFailSeconds", 60, 30),
    ],
)
def test_a_warning_comes_before_a_failure_with_defaults_included(
    delivery: str, field: str, warn: int, fail: int
) -> None:
    message = f"lagWarnSeconds must be less than lagFailSeconds, but {warn} is not less than {fail}"
    assert problems(slo(f"{{groupRef: edge, delivery: {{{delivery}}}}}"), STORED) == [
        f"4: FederationSLO/slo spec.delivery.{field}: {message} (the defaults are 60 and 180)"
    ]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("{}", "spec.groupRef: is required"),
        ("{groupRef: edge, delivery: {lagWarnSeconds: -1}}", "spec.delivery.lagWarnSeconds: must be at least 0"),
        ("{groupRef: edge, delivery: {lagWarnSeconds: 1m}}", "spec.delivery.lagWarnSeconds: must be a whole number"),
        ("{groupRef: edge, subscription: {maxFailedRuns: -1}}", "spec.subscription.maxFailedRuns: must be at least 0"),
        ("{groupRef: edge, lagWarnSeconds: 5}", "spec.lagWarnSeconds: unknown field"),
    ],
)
def test_what_is_wrong_is_named(spec: str, problem: str) -> None:
    [told] = problems(slo(spec), STORED)
    assert told.startswith(f"4: FederationSLO/slo {problem}")


def test_a_group_has_one() -> None:
    message = "group edge already has FederationSLO/slo (a group can have only one)"
    assert problems(f"{slo()}---\n{slo(name='other')}", STORED) == [f"9: FederationSLO/other spec.groupRef: {message}"]
    stored = rows(f"{GROUP}---\n{slo()}")
    assert problems(slo(name="other"), stored) == [f"4: FederationSLO/other spec.groupRef: {message}"]
    assert problems(slo(), stored) == []
