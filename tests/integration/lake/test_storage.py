from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from eventd.errors import LakeUnavailable, LakeUnusable, MissingExtra, NotFound
from eventd.lake import extra
from eventd.lake.layout import HEAD
from eventd.lake.storage import ConnectedStorage, Storage, connect, make_lake, open_lake
from eventd.lake.store_remedies import remedy_of
from eventd.lake.stored_files import StoredFile, Written
from eventd.runtime.chance import SYSTEM

SHA_OF_AB = "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603"


def test_what_is_put_is_read_and_listed(any_storage: Storage) -> None:
    any_storage.put("a/b/one", b"1")
    any_storage.put("a/two", b"22")
    any_storage.put("c/three", b"333")
    assert any_storage.read("a/b/one") == b"1"
    assert any_storage.list("a") == [("a/b/one", 1), ("a/two", 2)]
    assert any_storage.read_many(["a/two", "c/three", "c/four"]) == {"a/two": b"22", "c/three": b"333"}
    assert any_storage.read_many([]) == {}


def test_a_put_replaces(any_storage: Storage) -> None:
    any_storage.put("a/one", b"1")
    any_storage.put("a/one", b"11")
    assert any_storage.read("a/one") == b"11"


def test_a_file_is_written_piece_by_piece_and_told_of(any_storage: Storage) -> None:
    with any_storage.create("a/one") as draft:
        draft.write(b"a")
        draft.write(b"b")
        assert any_storage.list("a") == []
    assert draft.written == Written(2, SHA_OF_AB)
    assert any_storage.read("a/one") == b"ab"


def break_off(storage: Storage, path: str) -> None:
    with suppress(ZeroDivisionError), storage.create(path) as draft:
        draft.write(b"a")
        raise ZeroDivisionError


def test_what_breaks_off_leaves_nothing(any_storage: Storage) -> None:
    break_off(any_storage, "a/one")
    assert any_storage.list("a") == []
    with pytest.raises(NotFound, match="a/one is not in the lake at"):
        any_storage.read("a/one")


def test_what_breaks_off_leaves_what_was_there(any_storage: Storage) -> None:
    any_storage.put("a/one", b"1")
    break_off(any_storage, "a/one")
    assert any_storage.read("a/one") == b"1"


def test_what_is_deleted_is_gone_and_may_be_gone_before(any_storage: Storage) -> None:
    any_storage.put("a/one", b"1")
    any_storage.put("a/two", b"2")
    any_storage.delete(["a/one", "a/none", "b/none"])
    assert any_storage.list("a") == [("a/two", 1)]


def test_where_nothing_is_nothing_is_listed(any_storage: Storage) -> None:
    assert any_storage.list("a") == []


def test_a_lake_is_made_once(any_storage: Storage) -> None:
    with pytest.raises(NotFound, match=r"there is no lake at .*EVENTD_LAKE"):
        open_lake(any_storage)
    made = make_lake(any_storage, 5, SYSTEM)
    assert make_lake(any_storage, 6, SYSTEM) == open_lake(any_storage) == made
    assert made.made_at == 5


def test_a_lake_of_another_schema_is_refused(any_storage: Storage) -> None:
    any_storage.put(HEAD, b'{"schema": 2, "id": "x", "made_at": 0, "new": true}')
    with pytest.raises(LakeUnusable, match=r"is of schema version 2, and this program knows 1"):
        open_lake(any_storage)
    with pytest.raises(LakeUnusable):
        make_lake(any_storage, 1, SYSTEM)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"schema": 1}', b'{"schema": "1"}', b"\xff"])
def test_a_lake_that_cannot_be_read_is_refused_in_words(any_storage: Storage, text: bytes) -> None:
    any_storage.put(HEAD, text)
    with pytest.raises(LakeUnusable, match=f"{HEAD} is no"):
        open_lake(any_storage)


def test_a_head_that_is_longer_than_any_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    with (tmp_path / "lake" / HEAD).open("wb") as file:
        file.truncate(1 << 40)  # no byte on the disk
    with pytest.raises(LakeUnavailable, match=f"{HEAD} in the lake at .* has more than 16 MiB"):
        open_lake(connect(str(tmp_path / "lake")))


def test_the_ends_of_files_are_read_and_missing_files_left_out(any_storage: ConnectedStorage) -> None:
    any_storage.put("a/one", b"0123456789")
    any_storage.put("a/two", b"ab")
    files = [StoredFile("a/one", 10), StoredFile("a/none", 5), StoredFile("a/two", 2)]
    for size, end in ((3, b"789"), (10, b"0123456789"), (99, b"0123456789")):
        assert any_storage.read_ends(files, size) == {"a/one": end, "a/two": b"ab"}
    assert any_storage.read_ends([], 3) == {}


def test_a_half_written_file_is_not_listed(storage: Storage, tmp_path: Path) -> None:
    storage.put("a/one", b"1")
    (tmp_path / "lake/a/.two.77.tmp").write_bytes(b"2")
    assert storage.list("a") == [("a/one", 1)]
    assert storage.unfinished("a") == ["a/.two.77.tmp"]


def test_empty_days_go_with_their_last_file(storage: Storage, tmp_path: Path) -> None:
    storage.put("landing/events/dt=1/node=a/one", b"1")
    storage.delete(["landing/events/dt=1/node=a/one"])
    assert [*(tmp_path / "lake/landing/events").iterdir()] == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_not_ours_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(LakeUnavailable, match="Permission denied"):
        make_lake(connect(str(tmp_path / "lake")), 1, SYSTEM)


def test_a_lake_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("no folder")
    with pytest.raises(LakeUnavailable, match=f"cannot write {HEAD} in the lake at {tmp_path}/lake: "):
        make_lake(connect(str(tmp_path / "lake")), 1, SYSTEM)


def test_an_address_that_nothing_reaches_is_told() -> None:
    with pytest.raises(LakeUnusable, match="nowhere"):
        connect("nowhere://bucket/lake")


def test_no_secret_of_an_address_is_shown() -> None:
    with pytest.raises(LakeUnusable) as told:
        connect("nowhere://me:hush@host/lake?sig=hush")
    assert "hush" not in str(told.value)


def test_an_unreachable_store_is_told_without_its_password(tmp_path: Path) -> None:
    storage = connect("ftp://me:hush@127.0.0.1:1/lake")
    with pytest.raises(LakeUnavailable) as told:
        storage.list("")
    assert "hush" not in str(told.value)


@pytest.mark.parametrize(
    ("keys", "error", "remedy"),
    [
        ({}, "NoCredentialsError", "AWS_ACCESS_KEY_ID"),
        ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}, "EndpointConnectionError", "FSSPEC_S3_ENDPOINT_URL"),
    ],
    ids=["no credentials", "no answer"],
)
def test_an_error_of_a_store_names_what_to_do(tmp_path: Path, keys: dict[str, str], error: str, remedy: str) -> None:
    """Its packages show their own errors, which name no setting. They read variables when they are loaded."""
    code = (
        "from eventd.errors import LakeUnavailable; from eventd.lake.storage import connect\n"
        "try: connect('s3://audit-lake/edge').read('x')\n"
        "except LakeUnavailable as error: print(error.message); print(error.hint)"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    alone = {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "1"}
    environ = {**kept, **alone, "FSSPEC_S3_ENDPOINT_URL": "http://127.0.0.1:1", **keys}
    ended = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    message, hint = ended.stdout.splitlines()
    assert error in message, ended.stderr
    assert remedy in hint


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (PermissionError("403"), "list, read, write and delete"),
        (TimeoutError(), "that the store answers"),
        (KeyError("x"), ""),
    ],
)
def test_the_remedy_is_that_of_the_class_of_the_error_or_of_its_cause(error: Exception, remedy: str) -> None:
    wrapped = OSError("of another package")
    wrapped.__cause__ = error
    for one in (error, wrapped):
        assert remedy in remedy_of(one)
        assert bool(remedy) is bool(remedy_of(one))


def test_a_missing_package_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[lake\]'"):
        extra.fsspec()
