"""Stage 1: the runs of seqs in a segment of `events`, in which no seq is missing.

A node assigns the seqs of a group without a hole, and its retention removes only the oldest events. So a seq that is
missing between two runs was erased, unless the ledgers say otherwise: see `holes`.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np

from eventd.audit.arrays.columns import Columns, Numbers
from eventd.lake.manifest import Number, Time

RUN_COLUMNS = ("group", "seq", "position", "recorded_at")
"""The columns of `events` that show the runs."""


class SeqRun(msgspec.Struct, frozen=True, array_like=True):
    """Events of a group with all seqs from `first` to `last`, and the positions and times of these two (microseconds).

    Between them, positions and times do not fall: a node recorded the events in this order.
    """

    group: str
    first: Number
    last: Number
    first_position: Number
    last_position: Number
    first_at: Time
    last_at: Time


def seq_runs(table: Columns) -> list[SeqRun]:
    """Return the runs of all groups in these rows of one segment, by group and position."""
    if not table.rows:
        return []
    group, seq, position, at = table.words("group"), *(table.numbers(name) for name in RUN_COLUMNS[1:])
    code = group.codes
    rising = bool((np.diff(position) > 0).all())
    if not rising or (code != code[0]).any():
        order = np.argsort(code, kind="stable") if rising else np.lexsort((position, code))
        code, seq, position, at = code[order], seq[order], position[order], at[order]
    breaks = np.flatnonzero((np.diff(seq) != 1) | (np.diff(code) != 0)) + 1
    bounds = [0, *breaks.tolist(), table.rows]
    return [
        SeqRun(
            group.values[int(code[begin])],
            *_ends(seq, begin, end),
            *_ends(position, begin, end),
            *_ends(at, begin, end),
        )
        for begin, end in pairwise(bounds)
    ]


def _ends(values: Numbers, begin: int, end: int) -> tuple[int, int]:
    return int(values[begin]), int(values[end - 1])
