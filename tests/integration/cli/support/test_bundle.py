"""routerctl support-bundle, and reading one instead of a node."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.conftest import Control

CANARY = "c4n4ry-0123456789"
DECLARED = f"""
apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {{name: edge, labels: {{site: north}}, annotations: {{note: "{CANARY}"}}}}
spec: {{nodeName: alpha, auth: {{secretFile: FOLDER/secret}}}}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventPeer
metadata: {{name: beta-peer, labels: {{site: south}}}}
spec: {{groupRef: edge, nodeName: beta, endpoint: "http://10.9.8.7:8787"}}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventCallback
metadata: {{name: billing}}
spec:
  source: {{groupRef: edge}}
  url: "https://hooks.example.org/x?key={CANARY}"
  headers: {{X-Auth: "{CANARY}"}}
---
apiVersion: plugin.routerd.net/v1alpha1
kind: Plugin
metadata: {{name: claim}}
spec: {{executable: /usr/libexec/claim, env: {{API_TOKEN: "{CANARY}"}}}}
"""
EMIT = ("fed", "event", "emit", "--group", "edge", "--type", "t")


def declare(routerctl: Control, *, emit: bool = True) -> None:
    (routerctl.folder / "secret").write_text(f"{CANARY}\n" * 3)
    routerctl("apply", "-f", routerctl.file(DECLARED.replace("FOLDER", str(routerctl.folder))))
    if emit:
        routerctl(*EMIT, "--subject", CANARY, "--payload", f"a={CANARY}")


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        members = {member.name.partition("/")[2]: archive.extractfile(member) for member in archive}
        return {name: file.read() for name, file in members.items() if file is not None}


def manifest_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(contents(path)["manifest.json"])
    return found


@pytest.mark.parametrize("routerctl", ["sqlite", "api"], indirect=True)
def test_a_bundle_holds_no_secret_of_any_place(routerctl: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(routerctl)
    monkeypatch.setenv("EVENTD_API_KEY", CANARY)
    log = routerctl.folder / "node.log"
    log.write_text(f'{{"msg":"link blocked","peer":"beta","error":"http://a:{CANARY}@10.9.8.7/ answered 401"}}\n')
    bundle = routerctl.folder / "b.tar.gz"
    routerctl("support-bundle", "--brief", "--log", str(log), "--out", str(bundle))
    files = contents(bundle)
    assert [name for name, content in files.items() if CANARY.encode() in content] == []
    assert b'"peer":"beta"' in files["log-1.txt"]
    assert {"answers/doctor.examine.json", "answers/resources.describe.json", "versions.json"} <= files.keys()
    assert files.keys() == {"manifest.json", *manifest_of(bundle)["files"]}
    assert bundle.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("routerctl", ["sqlite"], indirect=True)
def test_a_command_shows_of_a_bundle_what_it_showed_of_the_node(routerctl: Control) -> None:
    declare(routerctl, emit=False)  # the age of a waiting event differs from command to command
    bundle = str(routerctl.folder / "b.tar.gz")
    routerctl("support-bundle", "--brief", "--out", bundle)
    for command in (
        ("get", "eg,ep", "-o", "yaml"),
        ("get", "all", "-l", "site=south", "-o", "json"),
        ("get", "peer/beta-peer", "-o", "json"),
        ("describe", "ep", "beta-peer"),
        ("federation", "links", "-o", "json"),
        ("federation", "status"),
        ("callback", "list", "-o", "json"),
    ):
        live = routerctl(*command).out.replace(f"?key={CANARY}", "?(removed)").replace(CANARY, "(removed)")
        assert routerctl("--from", bundle, *command).out == live, command


@pytest.mark.parametrize("routerctl", ["sqlite"], indirect=True)
def test_an_anonymous_bundle_names_nothing_of_the_operator(routerctl: Control) -> None:
    declare(routerctl)
    log = routerctl.folder / "node.log"
    log.write_text(
        '{"msg":"link blocked","group":"edge","peer":"beta","remote":"http://10.9.8.7:8787"}\nbeta is down\n'
    )
    bundle = routerctl.folder / "b.tar.gz"
    routerctl("support-bundle", "--brief", "--anonymize", "--log", str(log), "--out", str(bundle))
    files = contents(bundle)
    for name in ("beta-peer", "10.9.8.7", "hooks.example.org", "billing", '"alpha"', '"beta"', '"edge"', " beta "):
        assert [file for file, content in files.items() if name.encode() in content] == [], name
    peers = routerctl("--from", str(bundle), "get", "ep", "-o", "json").json
    groups = routerctl("--from", str(bundle), "get", "eg", "-o", "json").json
    assert peers[0]["spec"]["groupRef"] == groups[0]["metadata"]["name"]
    assert json.loads(files["log-1.txt"].splitlines()[0])["group"] == groups[0]["metadata"]["name"]


@pytest.mark.parametrize("routerctl", ["sqlite"], indirect=True)
def test_a_bundle_says_what_it_lacks_and_replaces_no_file(routerctl: Control) -> None:
    bundle = routerctl.folder / "b.tar.gz"
    told = routerctl("support-bundle", "--brief", "--log", "/nonexistent/x.log", "--out", str(bundle))
    assert "note: metrics is missing: no node runs" in told.err
    assert "note: log x.log is missing: No such file or directory" in told.err
    assert "metrics" in manifest_of(bundle)["missing"]
    assert "exists (name another file with --out)" in routerctl("support-bundle", "--out", str(bundle), code=1).err
    denied = routerctl("--from", str(bundle), "apply", "-f", routerctl.file(DECLARED), code=1)
    assert "has no answer to resources.apply" in denied.err
    assert "has no topics, records and streams" in routerctl("--from", str(bundle), "topic", "list", code=1).err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no archive", "is not a support bundle"),
        (b"\x1f\x8b\x08\x00 cut off", "is not a support bundle"),
        ({"x/answers/doctor.examine.json": b"{"}, "is not a support bundle"),
        ({"x/manifest.json": b"[1]", "x/answers/a.json": b'{"a": 1}'}, "is not a support bundle"),
        ({"x/manifest.json": b'{"bundle": 1}', "x/answers/a.json": b"[" * 100_000}, "is not a support bundle"),
        ({"other": b""}, "is not a support bundle"),
    ],
)
def test_what_is_no_bundle_is_refused(control: Control, content: bytes | dict[str, bytes], message: str) -> None:
    path = control.folder / "b.tar.gz"
    if isinstance(content, dict):
        with tarfile.open(path, "w:gz") as archive:
            for name, inner in content.items():
                member = tarfile.TarInfo(name)
                member.size = len(inner)
                archive.addfile(member, io.BytesIO(inner))
    else:
        path.write_bytes(content)
    assert message in control("--from", str(path), "doctor", code=1).err
