"""What a campaign of simulated runs prints at its end."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from eventd.text.plural import counted

if TYPE_CHECKING:  # it loads the node
    from eventd.simulation.campaign import CampaignResult

WIDTH: Final = 120
MANY_RUNS: Final = 100
"""From so many runs on, it is worth a line which branches none of them has taken."""
_HELD: Final = "\x1f"
"""Stands for a blank within an item while a line is wrapped."""


def summary_lines(found: CampaignResult) -> Iterator[str]:
    """Yield the lines about the runs of a campaign."""
    yield from _wrapped(
        "",
        [
            counted(found.runs, "run"),
            f"{found.failed_runs} with violations",
            f"{found.idle_runs} too idle to count; {counted(found.acknowledged_events, 'event')} acknowledged",
            f"{counted(found.batches, 'batch', 'batches')}; {counted(found.kills, 'kill')}",
            f"{counted(found.power_losses, 'power loss', 'power losses')};"
            f" {found.runs_per_cpu_minute:.0f} runs per CPU minute; campaign sum {found.sum}",
        ],
    )
    yield from _wrapped("faults: ", (f"{count} {kind}" for kind, count in sorted(found.faults.items())))
    met = [name for name, count in found.fault_pairs.items() if count]
    yield f"pairs of kinds that met: {len(met)} of {len(found.fault_pairs)}"
    yield from _wrapped("rare branches: ", (f"{count} {name}" for name, count in found.branches.items() if count))
    if found.never_taken and found.runs >= MANY_RUNS:
        yield from _wrapped("never taken: ", found.never_taken)


def _wrapped(begin: str, items: Iterable[str]) -> list[str]:
    """Return a list in lines of at most `WIDTH` characters, each of which ends after an item."""
    text = begin + (", ".join(item.replace(" ", _HELD) for item in items) or "none")
    lines = textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return [line.replace(_HELD, " ") for line in lines]
