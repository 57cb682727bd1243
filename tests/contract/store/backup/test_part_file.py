"""The file that a command fills stays the one that it created, whatever another user of the folder does to its name."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from eventd.errors import Conflict
from eventd.store.backup.part_file import PartFile


@pytest.fixture
def part(tmp_path: Path) -> Iterator[PartFile]:
    with closing(PartFile.create(tmp_path / "part")) as created:
        yield created


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "victim"
    file.touch(mode=0o600)
    return file


def _put_link(part: PartFile, victim: Path) -> None:
    part.path.unlink()
    part.path.symlink_to(victim)


def _put_hard_link(part: PartFile, victim: Path) -> None:
    part.path.unlink()
    part.path.hardlink_to(victim)


def _add_name(part: PartFile, victim: Path) -> None:
    victim.with_name("second").hardlink_to(part.path)


def _remove(part: PartFile, _victim: Path) -> None:
    part.path.unlink()


@pytest.mark.parametrize("change", [_put_link, _put_hard_link, _add_name, _remove])
def test_a_name_that_was_given_to_another_file_is_refused(
    part: PartFile, victim: Path, tmp_path: Path, change: Callable[[PartFile, Path], None]
) -> None:
    place = tmp_path / "place"
    place.touch()
    place.chmod(0o644)
    change(part, victim)
    for act in (part.give_to_owner, part.replace):
        with pytest.raises(Conflict, match="is no longer the file that was created"):
            act(place)
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600
    assert place.is_file()


def test_it_gets_the_mode_of_the_file_in_its_place_but_never_a_set_user_bit(part: PartFile, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.touch()
    place.chmod(0o4640)
    part.give_to_owner(place)
    assert stat.S_IMODE(os.fstat(part.handle).st_mode) == 0o640


def test_a_name_that_exists_is_refused_also_as_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(Conflict, match="exists already"):
        PartFile.create(tmp_path / "link")
    assert not (tmp_path / "nothing").exists()
