"""How times are written in requests."""

from __future__ import annotations

import pytest

from eventd.api.framework.moments import parse_moment, read_span, show_time
from eventd.errors import Invalid
from eventd.testing import NOW


def test_a_date_means_its_beginning_in_utc() -> None:
    assert show_time(parse_moment("2026-11-28", NOW)) == "2026-11-28T00:00:00Z"
    assert parse_moment("2026-11-28", NOW) == parse_moment("2026-11-28T01:00:00+01:00", NOW)
    first, last = read_span("2026-11-28", "2026-11-29", NOW)
    assert first is not None
    assert last is not None
    assert last - first == 86_400 * 1_000_000


@pytest.mark.parametrize("text", ["2026-11-31", "2026-1-2", "2026-11", "\u0662026-11-28"])
def test_what_is_no_date_is_refused_with_the_ways_to_write_a_time(text: str) -> None:
    with pytest.raises(Invalid, match="is not a time") as refused:
        parse_moment(text, NOW)
    assert (
        refused.value.hint
        == "write a time such as 2026-05-30T10:13:20Z, a date such as 2026-05-30, or an age such as 15m"
    )
