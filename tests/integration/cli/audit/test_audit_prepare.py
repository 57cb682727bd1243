"""`routerctl audit prepare` says why it can store nothing, before it starts Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import CONTROL, Processes
from tests.support.spark import require_spark


@pytest.mark.parametrize(("name", "value"), [("SPARK_CONF_DIR", "/etc/spark"), ("XDG_CACHE_HOME", "a folder")])
def test_settings_that_no_archive_fits_are_named(processes: Processes, tmp_path: Path, name: str, value: str) -> None:
    require_spark()
    where = value if value.startswith("/") else str(tmp_path / value)
    done = processes.run([*CONTROL, "audit", "prepare"], env={name: where})
    assert done.returncode == 1
    assert "the classes of Spark have no place" in done.stderr
    assert "Traceback" not in done.stderr
