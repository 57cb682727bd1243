"""The options of an audit for trees: a share of tiles, and the keys that the auditor knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.cli.audit.options import AuditOptions, request_of
from eventd.errors import Invalid
from tests.support import plain_history as plain

NAME = f"eventd/g/a/{'t' * 16}"


def test_a_share_of_tiles_and_a_policy_are_part_of_the_request(tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    policy.write_text(f"log {plain.vkey(NAME, 1, b'1' * 32)}\nquorum none\n")
    request = request_of(AuditOptions(lake="lake", history="sample=12.5", policy=policy), "out")
    assert (request.history, [key.name for key in request.policy or ()]) == (12.5, [NAME])
    request = request_of(AuditOptions(lake="lake"), "out")
    assert (request.history, request.policy) == (100.0, None)


@pytest.mark.parametrize("text", ["25", "sample=", "sample=101", "sample=nan", "tiles=3"])
def test_another_form_of_the_share_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="write sample=25"):
        request_of(AuditOptions(lake="lake", history=text), "out")


def test_a_policy_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        request_of(AuditOptions(lake="lake", policy=tmp_path / "none"), "out")
    (tmp_path / "other").write_text("log x\n")
    with pytest.raises(Invalid, match="other"):
        request_of(AuditOptions(lake="lake", policy=tmp_path / "other"), "out")
