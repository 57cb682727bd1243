"""The table of top as lines: a long text in the last column takes no room from the others."""

from __future__ import annotations

from eventd.cli.top.screen import _table
from eventd.cli.top.views import LINKS
from tests.unit.cli.top.test_choices import link


def test_only_the_last_column_is_as_long_as_its_text() -> None:
    rows = [link("cloud", state="failed", lastError="x" * 300), link("p" * 40)]
    header, first, second = [line.plain for line in _table(LINKS, rows)]
    assert header.startswith("GROUP  PEER                      STATE    NOW/S  1M/S  WAITING  LAG  DEAD  LAST_ERROR")
    assert first.startswith("edge   cloud                     failed   -      -     0        -    0     xxx")
    assert second.split()[1] == f"{'p' * 23}…"
    assert len(header) < 90
    assert len(first) > 300
