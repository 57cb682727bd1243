"""A session that a program opens by itself, without this package's help, on a machine where PATH lacks its Python."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from eventd.audit.spark.java import java_home
from eventd.lake.storage import connect
from tests.support.lakes import ship, ship_state
from tests.support.source import ROOT
from tests.support.spark import require_spark
from tests.support.spark_cluster import quick_spark

PAGE = ROOT / "docs" / "reference" / "spark-source.md"
READ = """
print("rows", spark.read.format("eventd").load(sys.argv[1]).count())
from eventd.audit.views import register_views
register_views(spark, sys.argv[1])
print("rows", spark.sql("SELECT count(*) FROM events").first()[0])
spark.stop()
"""


@pytest.mark.spark
def test_the_lines_of_the_page_open_a_session_that_finds_the_format(tmp_path: Path) -> None:
    """The interpreter is isolated: neither PATH, nor PYTHONPATH, nor the current folder lead to the package."""
    require_spark()
    (opening,) = re.findall(r"```python\n(import os\n.*?)```", PAGE.read_text(), re.DOTALL)
    lake = connect(str(tmp_path / "lake"))
    ship(lake, 0, 3)
    ship_state(lake, 3)
    program = tmp_path / "program.py"
    program.write_text(f"{opening}{READ}")
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "JAVA_HOME": str(java_home()),
        **quick_spark(tmp_path),
    }
    ran = subprocess.run(
        [sys.executable, "-I", program, lake.url],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert re.findall(r"rows (\d+)", ran.stdout) == ["3", "3"], ran.stderr
