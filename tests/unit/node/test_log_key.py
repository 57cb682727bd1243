"""The file with the key of a node's history."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from eventd.errors import SettingsError
from eventd.node.log_key import KEY_FILE, load_log_key
from eventd.runtime.chance import SYSTEM


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    made = load_log_key(tmp_path, SYSTEM)
    assert load_log_key(tmp_path, SYSTEM).private_bytes_raw() == made.private_bytes_raw()
    assert [file.name for file in tmp_path.iterdir()] == [KEY_FILE]
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "log \n", "log AAAA\n", "log é\n", "witness AAAA\n", "log A\nlog B\n"])
def test_a_file_that_is_no_key_is_named_and_stays(tmp_path: Path, content: str) -> None:
    (tmp_path / KEY_FILE).write_text(content)
    with pytest.raises(SettingsError, match=KEY_FILE):
        load_log_key(tmp_path, SYSTEM)
    assert (tmp_path / KEY_FILE).read_text() == content


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"the key of the history in .*nowhere"):
        load_log_key(tmp_path / "nowhere", SYSTEM)
