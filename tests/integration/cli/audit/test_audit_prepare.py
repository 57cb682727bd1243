"""`routerctl audit prepare` says why it can store nothing, before it starts Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import CONTROL, Processes
from tests.support.spark import require_spark


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("SPARK_CONF_DIR", "/etc/spark", "with settings of your own (SPARK_CONF_DIR=/etc/spark)"),
        ("XDG_CACHE_HOME", "a folder", "a folder/routerd-eventd/"),
    ],
)
def test_the_setting_that_no_archive_fits_is_named(
    processes: Processes, tmp_path: Path, name: str, value: str, reason: str
) -> None:
    require_spark()
    where = value if value.startswith("/") else str(tmp_path / value)
    done = processes.run([*CONTROL, "audit", "prepare"], env={name: where})
    assert done.returncode == 1
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
