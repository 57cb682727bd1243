"""Queries of boards. A selector asks for the variables of the board for those labels that the metric has."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.support.promql import known_metrics

VARIABLES = ("group", "peer", "callback", "topic")
"""Labels with a variable of the same name, beside `instance`, which every series has."""

_MATCHER = re.compile(r"^(\w+)(=~|!=|=)(.*)$")
_QUOTED = r'\1\2"\3"'


class Query(NamedTuple):
    """An expression and the legend of its series. An instant one has only the newest values."""

    expression: str
    legend: str
    instant: bool = False
    heatmap: bool = False


def series(metric: str, *matchers: str, whole: bool = False) -> str:
    """Return a selector; `whole`: not only of the groups that are chosen, for metrics that also exist without one.

    Matchers are written without quotes: `status=refused`, `state=~blocked|failed`.
    """
    chosen = [name for name in VARIABLES if name in known_metrics()[metric] and not whole]
    asked = ["instance=~$instance", *(f"{name}=~${name}" for name in chosen), *matchers]
    return f"{metric}{{{','.join(_MATCHER.sub(_QUOTED, one) for one in asked)}}}"


def rate(metric: str, by: str, *matchers: str, whole: bool = False) -> str:
    """Return a counter's rate a second, summed by these labels."""
    return f"sum by ({by}) (rate({series(metric, *matchers, whole=whole)}[$__rate_interval]))"


def increase(metric: str, by: str, *matchers: str, whole: bool = False) -> str:
    """Return how much a counter has grown in the time that the board shows."""
    return f"sum by ({by}) (increase({series(metric, *matchers, whole=whole)}[$__range]))"


def quantile(share: float, metric: str, by: str = "", *matchers: str) -> str:
    """Return a quantile of a histogram."""
    labels = ", ".join(filter(None, (by, "le")))
    within = rate(f"{metric}_bucket", labels, *matchers)
    return f"histogram_quantile({share}, {within})"


def quantiles(metric: str, by: str = "", legend: str = "", *matchers: str) -> list[Query]:
    """Return the median, and what one of twenty and one of a hundred exceeds."""
    return [
        Query(quantile(share, metric, by, *matchers), f"{legend} {name}".strip())
        for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    ]


def mean(metric: str, by: str) -> str:
    """Return the mean of a histogram."""
    return f"{rate(f'{metric}_sum', by)} / {rate(f'{metric}_count', by)}"


def state_code(metric: str, by: str) -> str:
    """Return a state as a number, in the order of `panels.STATES`."""
    states = ("running", "paused", "backing-off", "blocked", "failed")
    each = [f"{code} * ({series(metric, f'state={state}')} == 1)" for code, state in enumerate(states, 1)]
    return f"max by ({by}) ({' or '.join(each)})"
