"""A bundle is written whole or not at all."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventd.cli.support.bundle import _write
from eventd.errors import Invalid


@contextmanager
def small_files() -> Iterator[None]:
    """No file of this process may grow beyond 1,000 bytes meanwhile, not even what pytest writes to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_no_part_of_a_bundle_is_left_where_it_does_not_fit(tmp_path: Path) -> None:
    place = tmp_path / "b.tar.gz"
    with pytest.raises(Invalid, match="cannot write"), small_files():
        _write(place, 0, {}, {"log": os.urandom(5000)})
    assert [*tmp_path.iterdir()] == []
