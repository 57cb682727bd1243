"""The container image that `make image` built: what is in it, as whom it runs, and how soon it is ready.

`buildah run` starts it without an engine, as root of this machine and in a chroot. Limits, seccomp, a read-only root
and the usual base image are not tried so.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from deploy.release.image import IMAGE, archive, buildah, environment, missing
from deploy.release.source import ROOT, version
from tests.support.waiting import wait_for

pytestmark = pytest.mark.image

MOST_BYTES = 120_000_000
SECONDS_TO_READY = 3.0
PROBE_SECONDS = 0.06
CANARY = "canary-2f1d7c9a-secret"
SLACK = 2
"""On a busy machine."""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive, built now; what was downloaded and the base are kept between runs.

    The checkout has secrets where developers leave them, and so have the variables of the build.
    """
    if missing() or os.geteuid() != 0:
        pytest.skip(f"this needs to be root, and {', '.join(missing()) or 'nothing else'}")
    with planted_secrets():
        return archive(tmp_path_factory.mktemp("image") / "image.tar")


@contextmanager
def planted_secrets() -> Iterator[None]:
    places = [ROOT / name for name in (".env", "group.secret", "eventd-data/eventd.toml", "deploy/api-keys")]
    assert not [place for place in places if place.exists()]
    variables = ("EVENTD_API_KEYS", "EVENTD_DATABASE_URL", "OTEL_EXPORTER_OTLP_HEADERS")
    try:
        with pytest.MonkeyPatch.context() as patched:
            for place in places:
                place.parent.mkdir(exist_ok=True)
                place.write_text(CANARY)
            for name in variables:
                patched.setenv(name, CANARY)
            yield
    finally:
        for place in places:
            place.unlink(missing_ok=True)
        with suppress(OSError):
            (ROOT / "eventd-data").rmdir()


@pytest.fixture
def container(image: Path) -> Iterator[str]:
    name = buildah("from", f"{IMAGE}:{version()}").strip()
    yield name
    buildah("rm", name)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    folder.mkdir()
    os.chown(folder, 10001, 0)
    folder.chmod(0o770)
    for parent in (tmp_path, *tmp_path.parents):  # the container's user has to reach it
        if parent.owner() == "root" and parent.stat().st_mode & 0o077 == 0:
            parent.chmod(0o711)
    return folder


def inside(container: str, *words: str, volume: Path | None = None, user: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(run_command(container, *words, volume=volume, user=user), **ask())


def run_command(container: str, *words: str, volume: Path | None = None, user: str = "") -> list[str]:
    options = [f"--volume={volume}:/var/lib/routerd-eventd"] if volume else []
    options += [f"--user={user}"] if user else []
    listen = "--env=EVENTD_API_LISTEN=127.0.0.1:0"  # the network is that of this machine
    return ["buildah", "run", listen, *options, container, "--", *words]


def ask() -> dict[str, Any]:
    return {"env": environment(), "capture_output": True, "text": True}


def test_the_image_says_how_it_is_run(image: Path) -> None:
    about = json.loads(buildah("inspect", "--type", "image", f"{IMAGE}:{version()}"))["Docker"]["config"]
    assert (about["User"], about["Entrypoint"], about["Cmd"]) == ("10001:0", ["routerd-eventd"], ["serve"])
    assert about["Healthcheck"]["Test"] == ["CMD", "routerd-eventd", "probe"]
    assert list(about["Volumes"]) == ["/var/lib/routerd-eventd"]
    assert about["Labels"]["org.opencontainers.image.version"] == version()


def test_the_archive_can_be_read_and_holds_no_key(image: Path) -> None:
    inspect = ["skopeo", "inspect", "--config", f"docker-archive:{image}"]
    text = subprocess.run(inspect, capture_output=True, text=True, check=True).stdout
    assert json.loads(text)["config"]["User"] == "10001:0"
    assert not [word for word in ("PRIVATE KEY", "PASSWORD", "SECRET", "API_KEYS=") if word in text]


def test_no_layer_holds_a_secret_of_the_checkout_or_of_the_build(image: Path) -> None:
    read, found = 0, []
    with tarfile.open(image) as layers:
        for layer in layers:
            content = layers.extractfile(layer) if layer.isfile() else None
            whole = content.read() if content else b""
            read += len(whole)
            found += [layer.name] * (CANARY.encode() in whole)
    assert read > 50_000_000
    assert found == []


def test_the_image_is_small(image: Path) -> None:
    packed = io.BytesIO()
    with image.open("rb") as raw, gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6) as target:
        shutil.copyfileobj(raw, target)
    assert packed.tell() <= MOST_BYTES


def test_there_is_no_installer_and_no_compiler(container: str) -> None:
    for name in ("pip", "pip3", "gcc", "cc", "git"):
        assert inside(container, "sh", "-c", f"command -v {name}").returncode != 0, name
    assert inside(container, "/opt/routerd-eventd/bin/python", "-c", "import pip").returncode != 0
    assert "no broken" not in inside(container, "routerd-eventd", "version").stderr


@pytest.mark.parametrize("user", ["", "4711:0"])
def test_it_runs_without_rights_and_as_any_user_of_the_group_0(container: str, volume: Path, user: str) -> None:
    assert inside(container, "id", "-u", user=user).stdout.strip() == (user or "10001:0").split(":")[0]
    assert inside(container, "touch", "/opt/routerd-eventd/new", user=user).returncode != 0
    assert inside(container, "touch", "/var/lib/routerd-eventd/new", user=user).returncode == 0
    checked = inside(container, "routerd-eventd", "migrate", volume=volume, user=user)
    assert (checked.returncode, "applied 0001" in checked.stdout) == (0, True), checked.stderr
    assert (volume / "data" / "eventd.db").stat().st_uid == int((user or "10001").split(":")[0])


def test_a_node_is_ready_soon_and_a_signal_drains_it(container: str, volume: Path) -> None:
    inside(container, "routerd-eventd", "migrate", volume=volume)
    begun = time.monotonic()
    inside(container, "true", volume=volume)
    start_of_a_container = time.monotonic() - begun
    begun = time.monotonic()
    with (volume.parent / "log").open("wb") as log:
        node = subprocess.Popen(
            run_command(container, "routerd-eventd", "serve", volume=volume), env=environment(), stdout=log, stderr=log
        )
    try:
        wait_for(lambda: '"ready"' in (volume.parent / "log").read_text(), "the node to be ready", every=0.01)
        assert time.monotonic() - begun - start_of_a_container < SECONDS_TO_READY * SLACK
        asked = inside(container, "routerd-eventd", "probe", "--ready", volume=volume)
        assert (asked.returncode, asked.stdout) == (0, "ready\n"), asked.stderr
        assert probe_seconds(container, volume) <= PROBE_SECONDS * SLACK
        stop(volume)
        assert node.wait(timeout=30) == 0
        assert '"stopped"' in (volume.parent / "log").read_text()
    finally:
        if node.poll() is None:
            stop(volume)
            node.wait()
    assert inside(container, "routerd-eventd", "probe", volume=volume).returncode == 1


def stop(volume: Path) -> None:
    """Signal the node, which is not a child of buildah's first process, but whose number is the same outside."""
    os.kill(int((volume / "data" / "eventd.db.lock").read_text().split()[0]), signal.SIGTERM)


def probe_seconds(container: str, volume: Path) -> float:
    """Return the shortest of a few probes, without the start of the container."""
    program = (
        "import subprocess, time\n"
        "def once():\n"
        "    begun = time.monotonic()\n"
        "    subprocess.run(['routerd-eventd', 'probe'], check=True, stdout=subprocess.DEVNULL)\n"
        "    return time.monotonic() - begun\n"
        "print(min(once() for _ in range(10)))\n"
    )
    return float(inside(container, "python3", "-c", program, volume=volume).stdout)
