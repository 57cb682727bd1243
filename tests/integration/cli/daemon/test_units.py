"""The systemd units match the program they start."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from eventd.cli.daemon.serving import GRACE_SECONDS
from eventd.cli.program.exits import ExitCode
from eventd.quic.limits import TransportLimits
from eventd.settings.loading import load
from eventd.settings.model import Settings, variable_of

FOLDER = Path(__file__).parents[4] / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))


def values(unit: Path, key: str) -> list[str]:
    """What the unit says under a key, in order; what it only offers, behind a #, included."""
    return re.findall(rf"^#?{key}=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)


def test_there_is_one_for_a_node_and_one_for_a_group() -> None:
    assert [unit.name for unit in UNITS] == ["routerd-eventd.service", "routerd-eventd@.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_sets_what_is_a_setting_and_waits_as_long_as_a_stop_takes(unit: Path) -> None:
    variables = {assignment.split("=")[0] for assignment in values(unit, "Environment")}
    assert variables <= {variable_of(name) for name in Settings.model_fields}
    assert values(unit, "ExecStart") == ["/opt/routerd-eventd/bin/routerd-eventd serve"]
    assert int(values(unit, "TimeoutStopSec")[0]) > load({}, {}).drain_timeout + GRACE_SECONDS
    assert values(unit, "RestartPreventExitStatus") == [str(int(ExitCode.USAGE))]


def test_both_are_held_as_tightly() -> None:
    tight = [unit.read_text(encoding="utf-8").partition("NoNewPrivileges")[2] for unit in UNITS]
    assert tight[0] == tight[1]


def test_systemd_understands_the_units_with_their_drop_ins(tmp_path: Path) -> None:
    verified = verify(tmp_path)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_a_misspelt_key_is_found(tmp_path: Path) -> None:
    """The same check finds it in a unit, and in a drop-in."""
    for name, key in (("routerd-eventd.service", "KillMode"), ("drop-ins/tls.conf", "LoadCredential")):
        copy = tmp_path / key
        copy.mkdir()
        assert f"Extra{key}" in verify(copy, change=(name, f"{key}=", f"Extra{key}=")).stderr


def test_a_node_is_exposed_little(tmp_path: Path) -> None:
    """At most 2.0 of 10, by the count of systemd; without the limits of the unit it is more."""
    units = copy_units(tmp_path)
    assert [analyze("security", "--offline=true", "--threshold=20", str(unit)).returncode for unit in units] == [0, 0]
    units[0].write_text(units[0].read_text().partition("NoNewPrivileges=")[0])
    assert analyze("security", "--offline=true", "--threshold=20", str(units[0])).returncode != 0


def test_the_target_stops_and_restarts_all_nodes() -> None:
    for unit in UNITS:
        assert values(unit, "PartOf") == ["routerd-eventd.target"]
        assert "routerd-eventd.target" in values(unit, "WantedBy")[0].split()


def test_the_drop_in_for_tls_gives_credentials_to_settings() -> None:
    file = FOLDER / "drop-ins" / "tls.conf"
    given = {value.partition(":")[0] for value in values(file, "LoadCredential")}
    settings = dict(value.split("=") for value in values(file, "Environment"))
    assert settings.keys() <= {variable_of(name) for name in Settings.model_fields}
    assert {f"credential:{name}" for name in given} == set(settings.values())


def test_the_buffers_are_those_that_a_node_asks_for() -> None:
    lines = (FOLDER / "sysctl.d" / "90-routerd-eventd-quic.conf").read_text().splitlines()
    named = dict(line.split(" = ") for line in lines if not line.startswith("#"))
    assert named == {f"net.core.{name}": str(TransportLimits().socket_bytes) for name in ("rmem_max", "wmem_max")}


def test_the_folder_of_settings_is_made_for_root_alone(tmp_path: Path) -> None:
    if shutil.which("systemd-tmpfiles") is None or os.geteuid() != 0:
        pytest.skip("this needs systemd-tmpfiles, and to be root")
    file = FOLDER / "tmpfiles.d" / "routerd-eventd.conf"
    (tmp_path / "etc").mkdir()
    subprocess.run(["systemd-tmpfiles", "--create", f"--root={tmp_path}", file], check=True)
    made = (tmp_path / "etc" / "routerd-eventd").stat()
    assert (stat.S_IMODE(made.st_mode), made.st_uid) == (0o750, 0)


def copy_units(folder: Path, change: tuple[str, str, str] = ("", "", "")) -> list[Path]:
    """Copy units and drop-ins, with /bin/true in place of the program, which systemd looks for; return them."""
    for unit in [*UNITS, FOLDER / "routerd-eventd.target"]:
        text = unit.read_text(encoding="utf-8").replace("/opt/routerd-eventd/bin/routerd-eventd", "/bin/true")
        (folder / unit.name).write_text(text.replace(*change[1:]) if change[0] == unit.name else text)
        if unit.suffix == ".service":
            (folder / f"{unit.name}.d").mkdir()
            for file in FOLDER.glob("drop-ins/*.conf"):
                text = file.read_text()
                changed = text.replace(*change[1:]) if change[0] == f"drop-ins/{file.name}" else text
                (folder / f"{unit.name}.d" / file.name).write_text(changed)
    return [folder / unit.name for unit in UNITS]


def verify(folder: Path, change: tuple[str, str, str] = ("", "", "")) -> subprocess.CompletedProcess[str]:
    """Have systemd read all units, and those of the machine that they name."""
    copy_units(folder, change)
    names = ["routerd-eventd.service", "routerd-eventd@edge.service", "routerd-eventd.target"]
    done = analyze("verify", "--man=no", *names, environment={"SYSTEMD_UNIT_PATH": f"{folder}:"})
    ours = [line for line in done.stderr.splitlines() if "routerd-eventd" in line]
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout, "\n".join(ours))


def analyze(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    around = {**os.environ, **(environment or {})}
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=60, env=around)
