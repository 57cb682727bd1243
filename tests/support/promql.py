"""Expressions of Prometheus, read with a parser: the metrics and labels that they name, against those of a node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import promql_parser

from eventd.observe.consumer_figures import LINK_STATES
from eventd.observe.metrics import Metrics
from tests.support.source import ROOT

OF_TARGETS = frozenset(("job", "instance"))
"""The labels that Prometheus itself adds."""


class Selector(NamedTuple):
    """A series selector: the metric, and the values or patterns of labels that it asks for."""

    metric: str
    matchers: tuple[tuple[str, str], ...]


class Expression(NamedTuple):
    """What an expression names: its selectors, and the labels by which it groups or joins series."""

    selectors: list[Selector]
    grouping: set[str]


def read_expression(text: str) -> Expression:
    """Parse an expression. Raises ValueError if Prometheus would not accept it."""
    found = Expression([], set())

    def visit(node: promql_parser.Expr) -> None:
        match node:
            case promql_parser.VectorSelector():
                matchers = [(one.name, one.value) for one in node.matchers.matchers]
                found.selectors.append(Selector(node.name or "", tuple(matchers)))
            case promql_parser.AggregateExpr() if node.modifier is not None:
                found.grouping.update(node.modifier.labels)
            case promql_parser.BinaryExpr() if node.modifier is not None and node.modifier.matching is not None:
                found.grouping.update(node.modifier.matching.labels)

    promql_parser.walk(promql_parser.parse(text), visit)
    return found


@cache
def known_metrics() -> dict[str, frozenset[str]]:
    """Return the labels of all series of /metrics and /v0/metrics by name, without those that Prometheus adds."""
    return {**dict(_of_node()), **dict(_of_topics()), "up": frozenset()}


def _of_node() -> Iterator[tuple[str, frozenset[str]]]:
    registry = Metrics().registry
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        collector = registry._names_to_collectors.get(name)
        labels = frozenset(getattr(collector, "_labelnames", ()))
        if family.name.startswith("process_"):
            yield from ((sample.name, frozenset()) for sample in family.samples)
        elif family.type == "histogram":
            yield f"{name}_bucket", labels | {"le"}
            yield from ((f"{name}{end}", labels) for end in ("_count", "_sum"))
        else:
            yield name, labels


def _of_topics() -> Iterator[tuple[str, frozenset[str]]]:
    text = (ROOT / "docs" / "reference" / "topics-api.md").read_text()
    for name, kind in re.findall(r"^\| `(topics_\w+)` \| (\w+) \|", text, re.MULTILINE):
        one_topic = name.startswith("topics_topic_") and name != "topics_topic_metrics_truncated"
        labels = frozenset(("topic",) if one_topic else ("class",) if name == "topics_topics_by_class" else ())
        if kind == "histogram":
            yield f"{name}_bucket", labels | {"le"}
            yield from ((f"{name}{end}", labels) for end in ("_count", "_sum"))
        else:
            yield name, labels


def faults(text: str, recorded: dict[str, frozenset[str]] | None = None) -> list[str]:
    """Return what an expression names that no node has; `recorded` are the labels of series that rules record."""
    known = known_metrics() | (recorded or {})
    expression = read_expression(text)
    found, labels = [], set(OF_TARGETS)
    for metric, matchers in expression.selectors:
        if metric not in known:
            found.append(f"no metric {metric}")
            continue
        labels |= known[metric]
        found += [f"{metric} has no label {name}" for name, _ in matchers if name not in known[metric] | OF_TARGETS]
        found += [
            f"{metric} has no state {value}" for name, value in matchers if name == "state" and not _states(value)
        ]
    return found + [f"no label {name}" for name in sorted(expression.grouping - labels)]


def _states(pattern: str) -> bool:
    return pattern.startswith("$") or set(pattern.split("|")) <= {*LINK_STATES}
