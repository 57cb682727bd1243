"""The package that is sent to a cluster is complete: tested with a Python that sees nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import py4j
import pyspark
import pytest

from eventd.audit.spark.packing import NOT_SENT, code, environment, write_code
from eventd.errors import NotFound
from eventd.lake.storage import connect
from tests.support.lakes import ship

TASK = """
import os, sys
sys.path[:0] = sys.argv[2:]
import eventd.audit.engine.run, eventd.audit.source.databases, eventd.audit.source.nodes, eventd.cli.routerctl, psycopg
from pyspark_eventd import DefaultSource
source = DefaultSource({"path": sys.argv[1]})
reader = source.reader(source.schema())
print(*(row for piece in reader.partitions() for batch in reader.read(piece) for row in batch["number"].to_pylist()))
files = [module.__file__ for name, module in sys.modules.items() if name.startswith("eventd")]
print({file.split(".zip")[0] for file in files if file}, flush=True)
os._exit(0)  # as Spark ends its workers; Arrow's threads may abort an orderly exit on a busy machine
"""


def test_our_zip_and_the_archive_are_all_that_a_task_needs_beside_spark(tmp_path: Path) -> None:
    lake = connect(str(tmp_path / "lake"))
    ship(lake, 0, 5)
    ours = tmp_path / "code.zip"
    write_code(ours)
    packages, spark = tmp_path / "environment", tmp_path / "spark"
    for folder in (packages, spark):
        folder.mkdir()
    for name, source in {name.split("/")[0]: str(source).removesuffix(name) for source, name in environment()}.items():
        (packages / name).symlink_to(Path(source, name))
    for package in (pyspark, py4j):
        (spark / package.__name__).symlink_to(Path(package.__file__).parent)
    bare = [sys.executable, "-E", "-S", "-c", TASK, lake.url, str(ours), str(packages), str(spark)]
    done = subprocess.run(bare, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["1 2 3 4 5", repr({str(ours).removesuffix(".zip")})], done.stderr


def test_neither_spark_nor_a_java_is_sent() -> None:
    assert not {name.split("/")[0] for _, name in environment()} & NOT_SENT


def test_a_package_that_is_named_goes_along_and_one_that_is_not_here_is_named() -> None:
    assert "pytest/__init__.py" in {name for _, name in environment(["pytest"])}
    with pytest.raises(NotFound, match="the package s4fs is not installed here"):
        next(environment(["s4fs"]))


def test_the_zip_has_what_is_not_python_too() -> None:
    names = {name for _, name in code()}
    assert {
        "eventd/audit/spark/log4j2.properties",
        "eventd/audit/report/html/templates/page.html",
        "eventd/audit/report/html/templates/report.css",
        "pyspark_eventd/__init__.py",
    } <= names
    assert not [name for name in names if "__pycache__" in name]
