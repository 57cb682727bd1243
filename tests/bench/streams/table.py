"""The medians of a comparison as ratios beside their targets, as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio of two figures, and its bound: `most` or at least."""

    name: str
    of: Callable[[Figures], float]
    bound: float
    most: bool

    def row(self, figures: Figures) -> str | None:
        """Return the row of the table; None if a figure was not measured."""
        try:
            value = self.of(figures)
        except KeyError:
            return None
        reached = value <= self.bound if self.most else value >= self.bound
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
    ratios = [row for target in TARGETS if (row := target.row(medians)) is not None]
    lines = ["| Ratio | Median | Target | Reached |", "| --- | --: | --: | --- |", *ratios, ""]
    lines += ["| Figure | Median | Lowest | Highest |", "| --- | --: | --: | --: |"]
    for name, median in medians.items():
        taken = [one[name] for one in rounds]
        lines.append(f"| {name} | {median:,.1f} | {min(taken):,.1f} | {max(taken):,.1f} |")
    return "\n".join(lines) + "\n"
