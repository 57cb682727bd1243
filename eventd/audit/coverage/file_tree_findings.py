"""What an audit finds of the trees of files: findings, doubts, and the trees that later audits look for again."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import msgspec

from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.report import Limitation
from eventd.audit.segments.plan import NodeEpoch
from eventd.lake.layout import SegmentName
from eventd.lake.manifest import NodeState, Number, Time
from federation.history.lake_checkpoints import LakeOrigin

RESTORE: Final = "restore the file from a copy of the lake, and find out who writes to it"
NOT_SIGNED: Final = "not signed"
"""The kind of a limitation about files that their node has not signed."""


class SeenFileTree(msgspec.Struct, frozen=True):
    """A tree of files as an audit has seen it: that of a node and epoch with these many lines, and their root.

    `at` is when its state was written (microseconds).
    """

    node: str
    epoch: str
    tree: str
    size: Number
    root: str
    at: Time

    @property
    def origin(self) -> LakeOrigin:
        """Return the name of the tree."""
        return LakeOrigin(self.node, self.epoch, self.tree)


@dataclass
class FileTreeFindings:
    """What is found of all trees of files. `doubts`: files that no node has signed, or with a key that is not known.

    `signed`: the nodes that have signed all of their files, which are as they signed them. `seen`: the trees that
    later audits compare with the lake. `withdrawn`: by node and epoch, the segments that retention has removed, and
    that no line of their tree says so of. `expired`: by node, the day of the last segment that it has signed to be
    removed by its own retention, and when the epoch of that segment began.
    """

    findings: list[Finding] = field(default_factory=list)
    doubts: list[Limitation] = field(default_factory=list)
    signed: set[str] = field(default_factory=set)
    seen: list[SeenFileTree] = field(default_factory=list)
    doubted: set[str] = field(default_factory=set)
    withdrawn: dict[NodeEpoch, list[SegmentName]] = field(default_factory=dict)
    expired: defaultdict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))

    def doubt(self, node: str, kind: str, where: str, message: str, hint: str) -> None:
        """Add that some files of a node are not proven to be its own."""
        self.doubted.add(node)
        self.doubts.append(Limitation(kind=kind, where=where, message=message, hint=hint))

    def fault_in_state(self, state: NodeState, path: str, fault: str) -> None:
        """Add that a state, or the tree that it is signed with, is not what its node signed."""
        self._add(state.node, 0, 0, path, fault)

    def fault_in_segment(self, node: str, place: SegmentName, fault: str) -> None:
        """Add that a segment is not what its node signed."""
        self._add(node, place.after + 1, place.upto, place.name, fault)

    def _add(self, node: str, first: int, last: int, where: str, fault: str) -> None:
        self.findings.append(Finding(Kind.LAKE_REWRITTEN, "", node, "", first, last, (where,), f"{fault}; {RESTORE}"))
