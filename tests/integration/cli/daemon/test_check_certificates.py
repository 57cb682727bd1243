"""`routerd-eventd check`, on a database that declares listeners and links with TLS."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Files
from tests.support.declared import declare, group, peer
from tests.support.ports import free_port
from tests.support.processes import DAEMON, Processes

DAY = datetime.timedelta(days=1)


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def checked(processes: Processes, *arguments: str) -> tuple[int, list[tuple[str, str]]]:
    """Return the exit status, and the state and detail of each check of certificates."""
    words = ("--data-dir", str(processes.directory / "node"), "--api-listen", "127.0.0.1:0", "-o", "json")
    done = processes.run([*DAEMON, "check", *words, *arguments])
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, [(row["state"], row["detail"]) for row in checks if row["name"] == "certificates"]


def apply(processes: Processes, tmp_path: Path, listen: dict[str, str], **link: object) -> None:
    """Declare a group whose listener has this TLS, a link with that one, and a link without."""
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef\n")
    secret.chmod(0o600)
    edge = group("a", port=free_port(), secret=secret)
    edge["spec"]["listen"]["tls"] = listen
    text = declare(edge, peer("b", 1, endpoint="https://127.0.0.1:1", tls=link), peer("c", 2))
    done = processes.control("apply", "-f", "-", "--data-dir", str(processes.directory / "node"), stdin=text)
    assert done.returncode == 0, done.stderr


def test_files_that_can_be_used(processes: Processes, ca: Authority, tmp_path: Path) -> None:
    apply(processes, tmp_path, ca.issue("a").listen, caFile=str(ca.file), **ca.issue("client").listen)
    assert checked(processes) == (0, [("ok", "2 listeners and links with TLS: all files can be used")])
    assert checked(processes, "--group", "other") == (0, [])


def test_each_group_and_peer_whose_files_cannot_be_used(processes: Processes, ca: Authority, tmp_path: Path) -> None:
    good, late = ca.issue("a"), ca.issue("late", lasts=-DAY)
    apply(processes, tmp_path, Files(good.cert, late.key).listen, caFile=str(tmp_path / "none"))
    assert checked(processes) == (
        0,
        [
            (
                "warning",
                f"EventGroup edge: spec.listen.tls: the private key {late.key} does not belong to the certificate"
                f" {good.cert} (write a PEM certificate and its unencrypted private key)",
            ),
            (
                "warning",
                f"EventPeer edge-b: spec.tls: cannot read {tmp_path / 'none'}: No such file or directory"
                " (check the path, and that the node's user may read the file)",
            ),
        ],
    )
    apply(processes, tmp_path, late.listen, caFile=str(ca.file), **good.listen)
    good.key.chmod(0o644)
    assert checked(processes) == (
        0,
        [
            ("warning", f"EventGroup edge: spec.listen.tls: the certificate {late.cert} has expired (renew it)"),
            (
                "warning",
                "EventPeer edge-b: spec.tls: every user of this machine may read or change the private key"
                f" {good.key} (run chmod o= {good.key})",
            ),
        ],
    )
