"""The file with the keys of a node's histories."""

from __future__ import annotations

import stat
from base64 import b64encode
from pathlib import Path

import pytest

from eventd.errors import Conflict, SettingsError
from eventd.runtime.chance import SYSTEM
from eventd.witnessing.node_keys import KEY_FILE, LoadedKeys, load_history_keys, rotate_log_key

ONE = b64encode(b"1" * 32).decode()


def test_the_keys_are_made_once_for_their_owner_alone(tmp_path: Path) -> None:
    made = load_history_keys(tmp_path, SYSTEM)
    again = load_history_keys(tmp_path, SYSTEM)
    assert again.log.private_bytes_raw() == made.log.private_bytes_raw()
    assert again.witness.private_bytes_raw() == made.witness.private_bytes_raw() != made.log.private_bytes_raw()
    assert [file.name for file in tmp_path.iterdir()] == [KEY_FILE]
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600


def test_a_file_with_the_key_of_logs_alone_gets_a_witness_key(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).write_text(f"log {ONE}\n")
    made = load_history_keys(tmp_path, SYSTEM)
    assert made.log.private_bytes_raw() == b"1" * 32
    assert load_history_keys(tmp_path, SYSTEM).witness.private_bytes_raw() == made.witness.private_bytes_raw()


def test_a_rotation_retires_the_key_of_logs_and_keeps_that_of_the_witness(tmp_path: Path) -> None:
    made = load_history_keys(tmp_path, SYSTEM)
    rotated = rotate_log_key(tmp_path, SYSTEM, lost=False)
    assert rotated.retired is not None
    assert rotated.retired.private_bytes_raw() == made.log.private_bytes_raw() != rotated.log.private_bytes_raw()
    assert rotated.witness.private_bytes_raw() == made.witness.private_bytes_raw()
    assert load_history_keys(tmp_path, SYSTEM).log.private_bytes_raw() == rotated.log.private_bytes_raw()
    assert rotate_log_key(tmp_path, SYSTEM, lost=True).retired is None


def test_a_key_that_signs_no_tree_yet_is_not_replaced_because_it_could_not_sign_the_change(tmp_path: Path) -> None:
    signing = [load_history_keys(tmp_path, SYSTEM).log.public_key().public_bytes_raw()]
    rotated = rotate_log_key(tmp_path, SYSTEM, signing, lost=False)
    with pytest.raises(Conflict, match="a tree is open that another key signs"):
        rotate_log_key(tmp_path, SYSTEM, signing, lost=False)
    assert load_history_keys(tmp_path, SYSTEM).log.private_bytes_raw() == rotated.log.private_bytes_raw()
    assert rotate_log_key(tmp_path, SYSTEM, signing, lost=True).retired is None


@pytest.mark.parametrize(
    "content",
    ["", "log \n", "log AAAA\n", "log é\n", f"witness {ONE}\n", f"log {ONE}\nlog {ONE}\n", f"log {ONE}\nother {ONE}\n"],
)
def test_a_file_that_has_no_keys_is_named_and_stays(tmp_path: Path, content: str) -> None:
    (tmp_path / KEY_FILE).write_text(content)
    with pytest.raises(SettingsError, match=KEY_FILE):
        load_history_keys(tmp_path, SYSTEM)
    assert (tmp_path / KEY_FILE).read_text() == content


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"the keys of the history in .*nowhere"):
        load_history_keys(tmp_path / "nowhere", SYSTEM)


def test_a_running_node_whose_key_file_was_deleted_makes_no_other_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = LoadedKeys(tmp_path, SYSTEM)
    first = keys.load()
    (tmp_path / KEY_FILE).unlink()
    for _ in range(2):
        assert keys.load() is first
    assert [record.message for record in caplog.records] == ["history key missing"], "it is reported once"
    assert not (tmp_path / KEY_FILE).exists()
    rotated = rotate_log_key(tmp_path, SYSTEM, lost=True).log.private_bytes_raw()
    assert keys.load().log.private_bytes_raw() == rotated
