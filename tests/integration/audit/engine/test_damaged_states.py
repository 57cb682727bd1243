"""What other programs may have put in place of the state of an audit: it is made again, or known to be damaged."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
import pytest

from eventd.audit.engine.history import resume
from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.state import INDEX, State, open_state
from eventd.audit.report.file_names import HISTORY
from eventd.errors import LakeUnavailable
from eventd.lake.manifest import LakeHead
from eventd.lake.storage import connect

LAKE = LakeHead(id="0a", made_at=0)
DEEP_LISTS = b"\x91" * 200_000


def test_a_state_that_is_nested_too_deeply_is_made_again(tmp_path: Path) -> None:
    out = connect(str(tmp_path))
    out.put(INDEX, b"\x82\xa4lake\xa20a\xa1x" + DEEP_LISTS)
    assert open_state(out, LAKE).entries == {}


_RUN = ["edge", 1, 9, 1, 9, 0, 0]


@pytest.mark.parametrize(
    "field",
    [
        {"read_at": -(2**62)},
        {"rows": 2**62},
        {"skews": {"b": {0: 2**63}}},
        *({"runs": [[*_RUN[:at], 2**62, *_RUN[at + 1 :]]]} for at in range(1, 7)),
        {"sums": [[0, 2**62, 1, 0]]},
        {"digests": [2**62, [], []]},
        {"digests": [0, [["edge", "a", "i", 1, 2**62, 0, 0, ""]], []]},
        {"facts": {"gaps": [["edge", "", "e", 0, 9, "", 2**62]]}},
        {"facts": {"gaps": [["edge", "", "e", 0, 2**62, "", 0]]}},
        {"facts": {"clocks": [["b", 2**62, 0, 0]]}},
        {"facts": {"keys": [["a", "edge", "k", "v2", 1, 0, 2**62]]}},
        {"facts": {"refused": [["edge", "b", "", 2**63, 0, 0]]}},
        {"facts": {"reached": [["b", "e", [[1, 2**62]]]]}},
        {"facts": {"stored": [[2**62, 0, 1]]}},
        {"facts": {"passed": [["edge", "b", -1, 2**62, [], {}, {}, {}, []]]}},
        {"facts": {"passed": [["edge", "b", -1, 0, [], {}, {}, {}, [[1, 2**62]]]]}},
        {"facts": {"receipts": {"faults": [["edge", "a", "b", "i", 2**62, "", "", ""]]}}},
    ],
    ids=str,
)
def test_a_state_with_values_that_none_has_is_made_again(tmp_path: Path, field: dict[str, object]) -> None:
    out = connect(str(tmp_path))
    entry = {"sha256": "", "ranges": "", "rows": 1, "file": "state/cells-1.parquet", "read_at": 0}
    out.put("state/cells-1.parquet", b"cells")
    index = msgspec.to_builtins(State(lake=LAKE.id), builtin_types=[bytes]) | {
        "cells": {"state/cells-1.parquet": [5, ""]}
    }
    out.put(INDEX, msgspec.msgpack.encode(index | {"entries": {"s": entry}}))
    assert [*open_state(out, LAKE).entries] == ["s"]
    out.put(INDEX, msgspec.msgpack.encode(index | {"entries": {"s": entry | field}}))
    assert open_state(out, LAKE).entries == {}


@pytest.mark.parametrize("full", [False, True])
def test_a_history_that_is_nested_too_deeply_is_damaged(tmp_path: Path, full: bool) -> None:
    out = connect(str(tmp_path))
    text = b'{"x":' + b"[" * 200_000
    out.put(INDEX, msgspec.msgpack.encode(State(lake=LAKE.id)))
    out.put(HISTORY, b"sha256 %s\n%s" % (hashlib.sha256(text).hexdigest().encode(), text))
    found = resume(out, LAKE, AuditRequest(lake="unused", out=str(tmp_path), full=full), now=7)
    assert full or (found.history.lost_at, found.history.lost) == (7, "is damaged")


@pytest.mark.parametrize(
    "field",
    [
        {"key": "A" * 100},
        {"lost_at": 2**62},
        {"rewritten": {"a": -(2**62)}},
        {"promises": [{"node": "a", "epoch": "e", "head": 2**62, "ends": {}, "at": 0}]},
        {"promises": [{"node": "a", "epoch": "e", "head": 2, "ends": {}, "at": 2**62}]},
        {"deleted": [[["a", "e", "events"], 0, 9, 2**62]]},
        {"segments": {"a": ["", 2**62, 0]}},
        {"segments": {"a": ["", 1, 2**63]}},
        {"ranges": [[["a", "e", "events"], -(2**62), 9, 9, 0]]},
        {"ranges": [[["a", "e", "events"], 0, 2**62, 9, 0]]},
        {"ranges": [[["a", "e", "events"], 0, 9, 2**62, 0]]},
    ],
)
def test_a_history_with_values_that_none_has_is_damaged(tmp_path: Path, field: dict[str, object]) -> None:
    out = connect(str(tmp_path))
    text = msgspec.json.encode({"lake": LAKE.id, "key": "AAAA", **field})
    out.put(HISTORY, b"sha256 %s\n%s" % (hashlib.sha256(text).hexdigest().encode(), text))
    found = resume(out, LAKE, AuditRequest(lake="unused", out=str(tmp_path)), now=7)
    assert (found.history.lost_at, found.history.lost) == (7, "is damaged")


@pytest.mark.parametrize("path", [INDEX, HISTORY])
def test_a_pipe_is_not_read(tmp_path: Path, path: str) -> None:
    (tmp_path / path).parent.mkdir()
    os.mkfifo(tmp_path / path)
    with pytest.raises(LakeUnavailable, match="it is not a regular file"):
        resume(connect(str(tmp_path)), LAKE, AuditRequest(lake="unused", out=str(tmp_path)), now=7)
