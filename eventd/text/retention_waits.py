"""Why retention keeps events over the limits of a group, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class _Reason(NamedTuple):
    """Words for one thing that retention waits for. `remedy`: a format with the name of the group."""

    words: str
    remedy: str


_REASONS: Final = {
    "peers": _Reason(
        "for peers",
        "to see which peers are behind: routerctl federation links --group {} (delete the EventPeer of one that does"
        " not return, or set retention.undelivered: drop)",
    ),
    "callbacks": _Reason("for callbacks", "to see which callbacks are behind: routerctl callback list"),
    "sealing": _Reason("until they are sealed", "to see how far events are sealed: routerctl log status --group {}"),
}


def describe_waits(waits: Mapping[str, int]) -> str:
    """Return for what retention keeps events; `waits` has the numbers of events, none of them 0, by the reason."""
    parts = [f"up to {number:,} {_words(reason)}" for reason, number in waits.items()]
    return f"events over the limits are kept: {', '.join(parts)}"


def describe_remedies(waits: Mapping[str, int], group: str) -> str:
    """Return what an operator can do, for each thing that retention waits for."""
    return "; ".join(_REASONS[reason].remedy.format(group) for reason in waits if reason in _REASONS)


def _words(reason: str) -> str:
    return _REASONS[reason].words if reason in _REASONS else f"for {reason}"
