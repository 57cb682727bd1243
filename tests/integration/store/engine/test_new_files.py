"""New SQLite files that several processes open at the same moment, as a node and a command do at its first start."""

from __future__ import annotations

from pathlib import Path

from tests.support import writers


def test_a_new_file_can_be_opened_by_several_processes_at_once(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path / f'{number}.db'}" for number in range(60)]
    with writers.FORKED.Manager() as manager, writers.pool(4) as pool:
        opened = pool.map(writers.open_together, [urls] * 4, [manager.Barrier(4)] * 4)
        assert list(opened) == [60] * 4
