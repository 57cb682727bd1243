"""What a power loss leaves of a file: sectors of any version since the last sync, and nothing older."""

from __future__ import annotations

import pytest

from eventd.simulation.world.disk_file import DiskFile
from eventd.simulation.world.streams import ChanceStreams

SEEDS = range(200)


def synced(content: bytes) -> DiskFile:
    file = DiskFile()
    file.write(0, content)
    file.sync()
    return file


def outcomes(file: DiskFile) -> list[bytes | None]:
    return [file.after_power_loss(ChanceStreams(seed).of("power")) for seed in SEEDS]


def test_what_was_synced_stays() -> None:
    assert set(outcomes(synced(b"a" * 9000))) == {b"a" * 9000}


def test_each_sector_has_a_version_since_the_last_sync() -> None:
    file = synced(b"a" * 8192)
    file.write(0, b"b" * 8192)
    file.write(4096, b"c" * 4096)
    found = [content for content in outcomes(file) if content is not None]
    assert {len(content) for content in found} == {8192}
    for content in found:
        sectors = [content[at : at + 512] for at in range(0, 8192, 512)]
        assert all(len(set(sector)) == 1 for sector in sectors), "a sector is never torn"
        assert {sector[:1] for sector in sectors[:8]} <= {b"a", b"b"}
        assert {sector[:1] for sector in sectors[8:]} <= {b"a", b"b", b"c"}
    assert b"a" * 8192 in found
    assert b"b" * 4096 + b"c" * 4096 in found
    assert any(len(set(content)) > 2 for content in found), "some loss is torn"


def test_a_file_without_a_sync_may_lose_its_name() -> None:
    file = DiskFile()
    file.write(0, b"a")
    assert {None, b"a"} <= set(outcomes(file))


def test_what_a_failed_sync_has_dropped_is_never_written_by_a_later_one() -> None:
    file = synced(b"a" * 512)
    file.write(0, b"b" * 512)
    file.forget()
    file.sync()
    assert file.forgotten == 1
    assert set(outcomes(file)) == {b"a" * 512}


@pytest.mark.parametrize("size", [0, 100])
def test_a_cut_may_be_lost(size: int) -> None:
    file = synced(b"a" * 512)
    file.truncate(size)
    assert set(outcomes(file)) == {b"a" * 512, b"a" * size}
