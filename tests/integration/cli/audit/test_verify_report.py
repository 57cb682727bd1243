"""`routerctl audit run --sign` and `audit verify-report`: every change of a signed report is found, also by OpenSSL."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from eventd.audit.assembly import final_hours
from eventd.audit.assembly.output_files import write_output
from eventd.audit.engine import run
from eventd.audit.engine.state import INDEX
from eventd.audit.engine.stream import CHECKPOINT
from eventd.audit.generate import GeneratorSettings, generate
from eventd.audit.report.file_names import DELTA, HISTORY, LOCK
from eventd.audit.review import earlier
from eventd.audit.review.verification import verify_report
from eventd.cli.program import key_files
from eventd.cli.program.key_files import read_public_keys, read_signing_key
from eventd.errors import SecretUnreadable
from eventd.lake.storage import Storage, connect
from eventd.runtime.clock import SECOND
from eventd.runtime.regular_files import RegularFile, read_regular
from eventd.streams.key_pairs import make_key, pem_of
from federation.ed25519 import pin
from tests.integration.cli.conftest import Control
from tests.support.audit_cases import MADE
from tests.support.local_spark import LocalSpark

PARTS = ["lake.sha256", "report.html", "report.json"]
TABLES = [f"tables/{name}/part-0.parquet" for name in ("balance", "findings", "hours", "keys", "pairs")]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The file of an auditor's private key, beside which its public part is `auditor.pub`."""
    file = tmp_path / "auditor.pem"
    file.write_bytes(pem_of(make_key(bytes(32))))
    subprocess.run(["openssl", "pkey", "-in", str(file), "-pubout", "-out", str(tmp_path / "auditor.pub")], check=True)
    return file


@pytest.fixture
def folder(key: Path, tmp_path: Path) -> Path:
    """The folder of a signed report with findings."""
    report = MADE["three missing"]()
    out = tmp_path / "out"
    signing = read_signing_key(key)
    write_output(connect(str(out)), report, report.findings, report.hours, {"nodes/a/b.json": "0" * 64}, key=signing)
    return out


@pytest.fixture
def verify(control: Control, tmp_path: Path) -> Callable[..., Any]:
    """Runs the command with the auditor's public key."""

    def run(report: Path, *more: str, code: int = 0) -> Any:
        keys = () if "--auditor-keys" in more else ("--auditor-keys", str(tmp_path / "auditor.pub"))
        return control("audit", "verify-report", str(report), *keys, *more, code=code)

    return run


def append(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\n")


def test_a_signed_report_is_valid(verify: Callable[..., Any], folder: Path) -> None:
    ended = verify(folder, "-o", "json")
    told = ended.json
    assert told["valid"]
    assert told["verdict"] == "incomplete"
    assert told["key"].startswith("sha256//")
    assert told["files"] == [{"path": path, "state": "unchanged"} for path in [*PARTS, *TABLES]]
    shown = verify(folder)
    assert (
        f"valid: signed with {told['key']}, 8 files; report of {told['made_at']}, its verdict: incomplete" in shown.err
    )


@pytest.mark.parametrize("path", ["lake.sha256", "report.html", *TABLES])
def test_a_changed_or_missing_file_is_named(verify: Callable[..., Any], folder: Path, path: str) -> None:
    append(folder / path)
    ended = verify(folder, code=4)
    assert f"error: the report is not as it was signed: {path} is changed (fetch it again" in ended.err
    (folder / path).unlink()
    ended = verify(folder, "-o", "json", code=4)
    assert f"{path} is missing" in ended.err
    assert not ended.json["valid"]
    assert [file["path"] for file in ended.json["files"] if file["state"] != "unchanged"] == [path]


def test_an_added_table_is_named(verify: Callable[..., Any], folder: Path) -> None:
    (folder / "tables" / "findings" / "part-1.parquet").write_bytes(b"PAR1")
    assert "tables/findings/part-1.parquet is not signed" in verify(folder, code=4).err


def test_of_a_changed_report_nothing_is_shown_but_the_states_of_the_files(
    verify: Callable[..., Any], folder: Path
) -> None:
    text = (folder / "report.json").read_text()
    (folder / "report.json").write_text(text.replace('"incomplete"', '"complete"', 1))
    append(folder / "report.html")
    for named, changed in ((folder, ["report.html", "report.json"]), (folder / "report.json", ["report.json"])):
        ended = verify(named, code=4)
        assert all(f"{path} is changed" in ended.err for path in changed)
        assert [line.split()[0] for line in ended.lines if line.endswith(" changed")] == changed
        assert "complete" not in ended.out
        told = verify(named, "-o", "json", code=4).json
        assert (told["valid"], told["made_at"], told["verdict"], told["lake"]) == (False, None, None, None)


def test_what_an_audit_keeps_beside_its_report_does_not_count_as_added(
    verify: Callable[..., Any], folder: Path
) -> None:
    for path in (INDEX, HISTORY, final_hours.INDEX, f"{DELTA}/pairs/part-0.parquet", f"{CHECKPOINT}/offsets/0"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"x")
    (folder / LOCK).write_bytes(b"7")
    assert "not compared: 1 file of Delta tables in delta/, which no signature covers" in verify(folder).err
    assert verify(folder, "-o", "json").json["delta_files"] == 1


def test_of_a_report_without_delta_tables_nothing_is_said_about_them(verify: Callable[..., Any], folder: Path) -> None:
    assert "delta" not in verify(folder).err
    assert verify(folder, "-o", "json").json["delta_files"] == 0


@pytest.mark.parametrize("path", ["delta/findings", "delta/findings/part-0.parquet"], ids=["folder", "file"])
def test_delta_tables_behind_a_link_are_counted(
    verify: Callable[..., Any], folder: Path, tmp_path: Path, path: str
) -> None:
    (folder / path).parent.mkdir(parents=True)
    (folder / path).symlink_to(tmp_path)
    assert verify(folder, "-o", "json").json["delta_files"] == 1


@pytest.mark.parametrize(
    "path",
    [
        "index.html",
        "tables/findings/part-1.parquet",
        "tables/findings/.part-1.parquet.7.tmp",
        "tables/more/a",
        ".lock/part-1.parquet",
    ],
)
def test_an_added_file_is_named(verify: Callable[..., Any], folder: Path, path: str) -> None:
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_bytes(b"x")
    ended = verify(folder, code=4)
    wanted = "not a regular file" if path.endswith(".tmp") else "not signed"
    assert f"error: the report is not as it was signed: {path} is {wanted} (fetch" in ended.err


@pytest.mark.parametrize("path", ["tables/findings/part-1.parquet", "index.html", "state", ".lock", "delta"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_an_added_link_or_pipe_is_named(
    verify: Callable[..., Any], folder: Path, tmp_path: Path, path: str, kind: str
) -> None:
    if kind == "pipe":
        os.mkfifo(folder / path)
    else:
        (folder / path).symlink_to(tmp_path)
    assert f"not as it was signed: {path} is not a regular file (fetch" in verify(folder, code=4).err


def test_a_folder_of_tables_that_is_a_link_is_named(verify: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    (folder / "tables" / "findings").rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "part-1.parquet").write_bytes(b"PAR1")
    (folder / "tables" / "findings").symlink_to(tmp_path / "elsewhere")
    assert "not as it was signed: tables/findings is not a regular file (fetch" in verify(folder, code=4).err


@pytest.mark.parametrize(
    ("path", "most"),
    [("report.json", "256 MiB"), ("report.sig", "1 MiB"), ("tables/findings/part-0.parquet", "2,048 MiB")],
)
def test_a_file_without_end_is_an_error_of_one_line(
    verify: Callable[..., Any], folder: Path, path: str, most: str
) -> None:
    os.truncate(folder / path, 1 << 40)
    assert verify(folder, code=1).err == f"error: {path} in the report at {folder} has more than {most}\n"


@pytest.mark.parametrize("path", ["report.json", "report.sig"])
def test_a_pipe_in_the_place_of_a_report_is_not_read(verify: Callable[..., Any], folder: Path, path: str) -> None:
    (folder / path).unlink()
    os.mkfifo(folder / path)
    ended = verify(folder, code=1)
    assert ended.err.startswith(f"error: cannot read {path} in the report at {folder}: it is not a regular file")


def test_the_report_alone_is_checked_without_the_other_files(verify: Callable[..., Any], folder: Path) -> None:
    (folder / "report.html").unlink()
    ended = verify(folder / "report.json", "-o", "json")
    assert ended.json["files"] == [{"path": "report.json", "state": "unchanged"}]


def test_no_byte_of_the_signature_can_be_changed(verify: Callable[..., Any], folder: Path) -> None:
    text = (folder / "report.sig").read_bytes()
    for place in range(0, len(text), 7):
        changed = bytes([*text[:place], text[place] ^ 1, *text[place + 1 :]])
        (folder / "report.sig").write_bytes(changed)
        assert "report.sig" in verify(folder, code=4).err
    lines = text.splitlines(keepends=True)
    for shorter in (lines[:-1], lines[1:], [*lines[:2], *lines[3:]], []):
        (folder / "report.sig").write_bytes(b"".join(shorter))
        assert "report.sig" in verify(folder, code=4).err
    (folder / "report.sig").write_bytes(text)
    verify(folder)


def test_another_key_does_not_verify_it(verify: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pub"
    public = make_key(bytes([7] * 32)).public_key().public_bytes_raw()
    other.write_bytes(base64.b64encode(public))
    ended = verify(folder, "--auditor-keys", str(other), code=4)
    assert "which is none of the given keys" in ended.err
    verify(folder, "--auditor-keys", str(other), "--auditor-keys", str(tmp_path / "auditor.pub"))
    both = tmp_path / "both.pub"
    openssl = ["openssl", "pkey", "-pubout", "-in", "/dev/stdin"]
    pem = subprocess.run(openssl, input=pem_of(make_key(bytes([7] * 32))), capture_output=True, check=True).stdout
    both.write_bytes(pem + (tmp_path / "auditor.pub").read_bytes())
    verify(folder, "--auditor-keys", str(both))


def test_what_is_not_there_exits_with_status_3(verify: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    (folder / "report.sig").unlink()
    assert "is not signed: report.sig is missing (run the audit with --sign KEY)" in verify(folder, code=3).err
    assert f"there is no report in {tmp_path / 'none'}" in verify(tmp_path / "none", code=3).err


def test_a_file_without_a_public_key_is_refused(verify: Callable[..., Any], folder: Path, key: Path) -> None:
    ended = verify(folder, "--auditor-keys", str(key), code=1)
    assert f"error: {key} does not hold Ed25519 public keys as PEM (write the public part" in ended.err
    assert key.read_text().splitlines()[1] not in ended.err
    assert "cannot read" in verify(folder, "--auditor-keys", str(folder / "none"), code=1).err


def test_the_former_name_of_the_option_works_with_a_notice(control: Control, folder: Path, tmp_path: Path) -> None:
    ended = control("audit", "verify-report", str(folder), "--keys", str(tmp_path / "auditor.pub"))
    assert ended.err.startswith("note: --keys is now called --auditor-keys; the old name still works\n")


@pytest.mark.parametrize("text", ["kind: EventGroup\nspec: {}\n", '{"apiVersion": "federation.routerd.net/v1alpha1"}'])
def test_the_documents_for_receipts_are_not_taken_for_public_keys(
    verify: Callable[..., Any], folder: Path, tmp_path: Path, text: str
) -> None:
    documents = tmp_path / "edge.yaml"
    documents.write_text(f"{text}# {(tmp_path / 'auditor.pub').read_text()}")
    told = verify(folder, "--auditor-keys", str(documents), code=1).err
    assert f"error: {documents} holds resources, and not public keys as PEM (name the file with the public key" in told


class ReplacedMeanwhile:
    """The files of a folder, of which another process replaces one after the first read."""

    def __init__(self, folder: Storage, path: str, content: bytes) -> None:
        self._folder = folder
        self._later = {path: content}
        self._first = {path: folder.read(path)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._folder, name)

    def read(self, path: str) -> bytes:
        return self._first.pop(path, None) or self._later.get(path) or self._folder.read(path)


def test_a_report_that_is_replaced_while_it_is_verified_is_not_returned(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = (folder / "report.json").read_bytes()
    (folder / "report.json").write_bytes(genuine.replace(b'"incomplete"', b'"complete"', 1))
    replaced = ReplacedMeanwhile(connect(str(folder)), "report.json", genuine)
    monkeypatch.setattr(earlier, "connect", lambda *_: replaced)
    found = verify_report(str(folder), read_public_keys([tmp_path / "auditor.pub"]))
    assert found.report is None
    assert [file.path for file in found.faults] == ["report.json"]


def test_a_signing_key_that_is_replaced_while_it_is_read_keeps_its_own_pin(
    key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [read_regular(key, 4096), RegularFile(pem_of(make_key(bytes([7] * 32))), 0o600)]
    monkeypatch.setattr(key_files, "read_regular", lambda *_: found.pop(0) if len(found) > 1 else found[0])
    signing = read_signing_key(key)
    assert signing.public is not None
    assert signing.id == pin(signing.public)


def test_the_secret_that_the_nodes_of_a_group_share_is_no_key_of_an_auditor(tmp_path: Path) -> None:
    shared = tmp_path / "group.key"
    shared.write_bytes(base64.b64encode(bytes(range(32))) + b"\n")
    with pytest.raises(SecretUnreadable, match="does not hold an unencrypted Ed25519 private key as PEM"):
        read_signing_key(shared)


def test_coreutils_and_openssl_verify_it(folder: Path, tmp_path: Path) -> None:
    check = ["sha256sum", "--check", "--strict", "--quiet", "report.sig"]
    assert subprocess.run(check, cwd=folder, capture_output=True).returncode == 0
    steps = """
        head -n -1 report.sig > statement
        tail -n 1 report.sig | cut -d ' ' -f 3 | base64 -d > signature
        openssl pkeyutl -verify -rawin -pubin -inkey ../auditor.pub -in statement -sigfile signature
    """
    done = subprocess.run(steps, shell=True, cwd=folder, capture_output=True, text=True)
    assert done.stdout == "Signature Verified Successfully\n"
    pin = "openssl pkey -pubin -in ../auditor.pub -outform DER | openssl dgst -sha256 -binary | base64"
    told = subprocess.run(pin, shell=True, cwd=folder, capture_output=True, text=True).stdout.strip()
    assert (folder / "report.sig").read_text().splitlines()[1] == f"# key sha256//{told}"


def test_an_audit_signs_and_the_next_one_without_a_key_leaves_no_signature(
    control: Control, verify: Callable[..., Any], key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "open_session", lambda *_, **__: nullcontext(LocalSpark()))
    monkeypatch.setattr(run, "quiet", nullcontext)
    lake, out = str(tmp_path / "lake"), tmp_path / "signed"
    generate(GeneratorSettings(nodes=2, events=40, span=3600 * SECOND, seed=2), lake)
    audit = ("audit", "run", "--lake", lake, "--out", str(out))
    refused = control(*audit, "--sign", str(tmp_path / "auditor.pub"), code=1)
    assert "does not hold an unencrypted Ed25519 private key" in refused.err
    assert not out.exists()
    key.chmod(0o604)
    assert f"note: every user of this machine may read {key}: chmod o= {key}" in control(*audit, "--sign", str(key)).err
    key.chmod(0o600)
    assert "every user" not in control(*audit, "--sign", str(key)).err
    signed = verify(out, "-o", "json").json
    assert signed["verdict"] == "complete"
    assert f'"signing_key": "{signed["key"]}"' in (out / "report.json").read_text()
    control(*audit, code=0)
    verify(out, code=3)
