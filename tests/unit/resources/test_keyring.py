"""Reading key files: what is not a regular file is refused, and blocks nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eventd.errors import SecretUnreadable
from eventd.resources.group_configuration import GroupConfig, KeyConfig, LimitsConfig, RetentionConfig
from eventd.resources.keyring import check_files, load_ring

GROUP = GroupConfig(
    name="edge",
    node_name="a",
    protocols=frozenset({"v2"}),
    listen=None,
    replay_window=1,
    secret_file="",
    keys=(),
    retention=RetentionConfig(max_events=None, max_age=None, max_bytes=None, keep_undelivered=True, ids=1),
    limits=LimitsConfig(1, 1, 1, 1, 1),
)


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def _folder(folder: Path) -> Path:
    return folder


def _device(_: Path) -> Path:
    return Path("/dev/zero")


@pytest.mark.parametrize("make", [_pipe, _folder, _device])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """To open a pipe without a writer would block for ever, and the node would apply no change any more."""
    place = make(tmp_path)
    told: list[str] = []

    def load() -> None:
        with pytest.raises(SecretUnreadable) as refused:
            load_ring(replace(GROUP, secret_file=str(place)), None)
        told.append(str(refused.value))

    reader = threading.Thread(target=load, daemon=True)
    reader.start()
    reader.join(10)
    assert told == [f"EventGroup 'edge': {place} is not a file (name the file of the key)"]


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef\n")
    (tmp_path / "link").symlink_to(tmp_path / "key")
    assert len(load_ring(replace(GROUP, secret_file=str(tmp_path / "link")), None).keys) == 1


def _key(id: str, file: str) -> KeyConfig:
    return KeyConfig(id, "*", "hmac-sha256", "active", file, "", None)


def test_files_are_checked_although_other_keys_are_credentials(tmp_path: Path) -> None:
    """Only the service manager's directory has the credentials, and only while the node starts."""
    file = tmp_path / "key"
    mixed = replace(GROUP, secret_file="credential:all", keys=(_key("k1", "credential:one"), _key("k2", str(file))))
    with pytest.raises(SecretUnreadable, match=f"cannot read {file}"):
        check_files(mixed)
    file.write_text("0123456789abcdef\n")
    check_files(mixed)
