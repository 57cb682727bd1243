"""The systemd units match the program they start."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from eventd.cli.daemon.serving import GRACE_SECONDS
from eventd.cli.program.exits import ExitCode
from eventd.settings.model import Settings, load, variable_of

UNITS = sorted((Path(__file__).parents[4] / "deploy" / "systemd").glob("*.service"))


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


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    text = unit.read_text(encoding="utf-8").replace("/opt/routerd-eventd/bin/routerd-eventd", "/bin/true")
    copy = tmp_path / unit.name
    copy.write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    about_ours = [line for line in verified.stderr.splitlines() if "routerd-eventd" in line]
    assert (verified.returncode, about_ours) == (0, [])
