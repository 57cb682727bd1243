"""A machine that lacks memory does not make a segment a damaged one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eventd.errors import LakeUnavailable
from eventd.lake.segment_file import BadSegment, parsing


@pytest.mark.parametrize("error", [pa.ArrowMemoryError("realloc of size 4096000000 failed"), MemoryError("no memory")])
def test_a_lack_of_memory_is_not_damage(error: Exception) -> None:
    with pytest.raises(LakeUnavailable, match="too little memory"), parsing(), parsing():
        raise error


@pytest.mark.parametrize("error", [pa.ArrowInvalid("bad page"), OSError("bad footer")])
def test_what_arrow_cannot_parse_is_damage(error: Exception) -> None:
    with pytest.raises(BadSegment, match="cannot be read: bad"), parsing():
        raise error
