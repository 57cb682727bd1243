"""The medians of a comparison as ratios beside their targets, as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.bench.rivals.table import Bar, draw

REACHED, MISSED = "#2da44e", "#cf222e"
Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio of two figures, and its bound: `most` or at least."""

    name: str
    of: Callable[[Figures], float]
    bound: float
    most: bool

    def value(self, figures: Figures) -> float | None:
        """Return the ratio; None if a figure was not measured."""
        try:
            return self.of(figures)
        except KeyError:
            return None

    def margin(self, value: float) -> float:
        """Return how many times better than the target it is; below 1 the target is missed."""
        value = max(value, 1e-3)
        return self.bound / value if self.most else value / self.bound

    def row(self, value: float) -> str:
        """Return the row of the table."""
        reached = self.margin(value) >= 1
        sign = "≤" if self.most else "≥"
        return f"| {self.name} | {value:.2f} | {sign} {self.bound:g} | {'yes' if reached else 'no'} |"


def _ratio(over: str, under: str) -> Callable[[Figures], float]:
    return lambda figures: figures[over] / figures[under]


TARGETS = (
    Target("publish to delivery, p50, over the bare echo", _ratio("own_p50_us", "echo_p50_us"), 5, True),
    Target("the same over NATS", _ratio("own_p50_us", "nats_p50_us"), 1.5, True),
    Target("its p99 over its p50", _ratio("own_p99_us", "own_p50_us"), 3, True),
    Target(
        "`fsync`: what it takes more, in flushes of this disk",
        lambda figures: (figures["own_fsync_p50_us"] - figures["own_p50_us"]) / figures["fsync_us"],
        2,
        True,
    ),
    Target("last of ten deliveries, p50, over one", _ratio("own_ten_p50_us", "own_p50_us"), 2, True),
    Target("the same over NATS", _ratio("own_ten_p50_us", "nats_ten_p50_us"), 1, True),
    Target("delivered, 256 bytes, over NATS", _ratio("own_rate_per_s", "nats_rate_per_s"), 1.5, False),
    Target("bulk, 4 KiB, over bare QUIC", _ratio("own_bulk_mb", "echo_bulk_mb"), 0.3, False),
    Target("ten readers beside a stalled one", _ratio("own_beside_stalled_rate", "own_ten_readers_rate"), 0.95, False),
    Target("memory for the stalled one, MiB", lambda figures: figures["own_stalled_mib"], 8, True),
    Target(
        "900 readers beside 100 that do not read: p99 over that without",
        _ratio("crowd_beside_p99_us", "crowd_p99_us"),
        1.3,
        True,
    ),
    Target("get, p50, over the bare echo", _ratio("own_get_p50_us", "echo_p50_us"), 1.5, True),
    Target("get, p50, over Redis", _ratio("own_get_p50_us", "redis_get_p50_us"), 1.2, True),
    Target("gets, 32 under way on one stream, over Redis", _ratio("own_gets_per_s", "redis_gets_per_s"), 0.5, False),
    Target("the same over the bare echo", _ratio("own_gets_per_s", "echo_frames_per_s"), 0.5, False),
    Target("gets over 8 × 4 streams, over Redis", _ratio("own_gets_wide_per_s", "redis_gets_wide_per_s"), 0.5, False),
    Target("put of 4 KiB, p50, over get", _ratio("own_put_p50_us", "own_get_p50_us"), 1.5, True),
)


def markdown(medians: Figures, rounds: Sequence[Figures]) -> str:
    """Return two tables: the ratios beside their targets, and the medians with the lowest and highest round."""
    ratios = [target.row(value) for target, value in _measured(medians)]
    lines = ["| Ratio | Median | Target | Reached |", "| --- | --: | --: | --- |", *ratios, ""]
    lines += ["| Figure | Median | Lowest | Highest |", "| --- | --: | --: | --: |"]
    for name, median in medians.items():
        taken = [one[name] for one in rounds]
        lines.append(f"| {name} | {median:,.1f} | {min(taken):,.1f} | {max(taken):,.1f} |")
    return "\n".join(lines) + "\n"


def picture(medians: Figures) -> str:
    """Draw each ratio as a bar: to the right of the line it is better than its target, to the left the target is
    missed."""
    groups = []
    for target, value in _measured(medians):
        margin = target.margin(value)
        groups.append((target.name, [Bar(margin, REACHED if margin >= 1 else MISSED)]))
    title = "How many times better than its target each ratio is (left of 1: the target is missed)"
    return draw("ratios and their targets", title, [("reached", REACHED), ("missed", MISSED)], groups, left=400)


def _measured(medians: Figures) -> list[tuple[Target, float]]:
    values = [(target, target.value(medians)) for target in TARGETS]
    return [(target, value) for target, value in values if value is not None]
