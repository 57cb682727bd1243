"""The memory for request bodies follows the memory limit of the process, whatever sets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.api.bodies import memory_limit
from eventd.api.bodies.bodies import GROWTH, LIGHT_BYTES, RESERVE, BodyMemory, _gather
from eventd.api.bodies.memory_limit import MemoryLimit, find_limit
from eventd.errors import TooLarge
from eventd.log.topics.errors import Throttled

MIB = 1 << 20


class Left(MemoryLimit):
    """A limit that always has so many bytes left."""

    def free(self) -> int:
        return self.limit


def test_a_body_is_refused_before_it_fills_what_is_left_of_a_limit() -> None:
    bodies = BodyMemory(64 * MIB, Left(RESERVE + GROWTH * MIB, 1))
    with bodies.hold() as held:
        held.grow_to(LIGHT_BYTES)
        assert held.bytes == 0, "small ones count nothing"
        held.grow_to(MIB)
        with pytest.raises(Throttled, match="short of memory"):
            held.grow_to(3 * MIB)
        assert held.bytes == bodies.held == MIB, "what was refused is not held"
    assert bodies.held == 0


def test_a_body_that_would_not_fit_alone_is_not_told_to_come_later() -> None:
    bodies = BodyMemory(64 * MIB, Left(80 * MIB, 1))
    assert bodies.most == 10 * MIB
    with bodies.hold() as held:
        with pytest.raises(TooLarge, match=r"larger than the 10485760 bytes .* memory limit"):
            held.grow_to(10 * MIB + 1)
        assert held.bytes == 0


class Content:
    """A body of which the first part arrives, and then an error."""

    def __init__(self) -> None:
        self._parts = [b"x" * MIB]

    async def readany(self) -> bytes:
        if self._parts:
            return self._parts.pop()
        raise ConnectionResetError


async def test_what_arrived_of_a_body_goes_with_its_connection() -> None:
    """The connection refers to the error, that to the frames, and all of it to itself: a cycle, which is freed late."""
    with BodyMemory(MIB).hold() as held, pytest.raises(ConnectionResetError) as broken:
        await _gather(Content(), 2 * MIB, held, setting=True)
    frame = broken.traceback[-2].frame
    assert len(frame.f_locals["body"]) == 0


def test_all_bodies_together_take_an_eighth_of_a_limit() -> None:
    assert BodyMemory(64 * MIB).most == 256 * MIB
    assert BodyMemory(64 * MIB, MemoryLimit(512 * MIB, 1)).most == 64 * MIB


GROUPS = """\
4:cpu,cpuacct:/
3:memory:/service
0::/system.slice/eventd.service
"""
"""As of a machine that has both versions of control groups."""
V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("limits", "address_space", "lowest"),
    [
        ({}, -1, None),
        ({}, 5, MemoryLimit(5 * MIB, 0)),
        ({f"{V2}/memory.max": 7}, 5, MemoryLimit(5 * MIB, 0)),
        ({f"{V2}/memory.max": 3}, 5, MemoryLimit(3 * MIB, 1)),
        ({f"{V2}/system.slice/eventd.service/memory.max": 3}, -1, MemoryLimit(3 * MIB, 1)),
        (
            {f"{V2}/system.slice/eventd.service/memory.max": 3, f"{V2}/system.slice/memory.max": 2},
            -1,
            MemoryLimit(2 * MIB, 1),
        ),
        ({f"{V1}/service/memory.limit_in_bytes": 3, f"{V1}/memory.limit_in_bytes": 4}, -1, MemoryLimit(3 * MIB, 1)),
        ({f"{V1}/service/memory.limit_in_bytes": (1 << 63) // MIB}, -1, None),
    ],
)
def test_the_lowest_limit_holds(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    limits: dict[str, int],
    address_space: int,
    lowest: MemoryLimit | None,
) -> None:
    groups = tmp_path / "cgroup"
    groups.write_text(GROUPS)
    texts = {path: f"{mib * MIB}\n" for path, mib in limits.items()} | {str(groups): GROUPS}
    monkeypatch.setattr(memory_limit, "_GROUPS", groups)
    monkeypatch.setattr(memory_limit.resource, "getrlimit", lambda _: (address_space * MIB, -1))
    monkeypatch.setattr(Path, "read_text", lambda path: texts.get(str(path), "max\n"))
    assert find_limit() == lowest


def test_without_control_groups_there_is_no_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory_limit, "_GROUPS", tmp_path / "none")
    monkeypatch.setattr(memory_limit.resource, "getrlimit", lambda _: (-1, -1))
    assert find_limit() is None


def test_what_is_left_is_read_from_the_system() -> None:
    assert 0 < MemoryLimit(1 << 50, 1).free() < 1 << 50
    assert MemoryLimit(1, 1).free() == 0
