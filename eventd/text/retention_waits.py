"""Why retention keeps events over the limits of a group, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from eventd.text.plural import counted


class _Reason(NamedTuple):
    """Words for one thing that retention waits for. `remedy`: a format with the name of the group."""

    words: str
    remedy: str


_REASONS: Final = {
    "peers": _Reason(
        "for peers",
        "see which peers are behind: routerctl federation links --group {}; for one that does not return, delete its"
        " EventPeer, or set retention.undelivered: drop",
    ),
    "callbacks": _Reason("for callbacks", "see which callbacks are behind: routerctl callback list"),
    "sealing": _Reason("until they are sealed", "wait, or see the history: routerctl log status --group {}"),
}


def describe_waits(waits: Mapping[str, int]) -> str:
    """Return what retention waits for; `waits` has the numbers of events, none of them 0, by the reason."""
    parts = [f"{counted(number, 'event')} {_words(reason)}" for reason, number in waits.items()]
    return f"kept over the limits of retention, at most: {', '.join(parts)}"


def describe_remedies(waits: Mapping[str, int], group: str) -> str:
    """Return what an operator can do, for each thing that retention waits for."""
    return "; ".join(_REASONS[reason].remedy.format(group) for reason in waits if reason in _REASONS)


def _words(reason: str) -> str:
    return _REASONS[reason].words if reason in _REASONS else f"for {reason}"
