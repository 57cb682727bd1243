"""Where the classes of Java are kept for a fast start, and when they are used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eventd.audit.spark.class_archive import ClassArchive, class_archive


@pytest.fixture
def java(tmp_path: Path) -> Path:
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17"')
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return tmp_path / "java"


def found(java: Path, **more: str) -> ClassArchive | None:
    spark = {"SPARK_HOME": str(java.parent / "spark"), "XDG_CACHE_HOME": str(java.parent / "cache")}
    return class_archive(java, java.parent, {**spark, **more})


def test_an_archive_is_used_once_java_has_written_it(java: Path, tmp_path: Path) -> None:
    archive = found(java)
    assert archive is not None
    assert archive.options(record=False) == ""
    archive.keep()
    assert not archive.file.exists(), "Java has not written any"

    assert f"-XX:ArchiveClassesAtExit={tmp_path}/classes.jsa " in archive.options(record=True)
    (tmp_path / "classes.jsa").write_bytes(b"classes")
    archive.keep()
    assert archive.file.read_bytes() == b"classes"
    assert [path.name for path in archive.file.parent.iterdir()] == [archive.file.name]
    assert f"-XX:SharedArchiveFile={archive.file} " in archive.options(record=False)
    assert "ArchiveClassesAtExit" in archive.options(record=True), "an old one is written again"


def test_another_java_or_spark_has_another_archive(java: Path) -> None:
    first = found(java)
    os.utime(java.parent / "spark" / "jars", (1, 1))
    second = found(java)
    (java / "release").write_text('JAVA_VERSION="21"')
    assert len({first, second, found(java)}) == 3


def test_where_the_operator_has_settings_or_a_path_does_not_fit_there_is_none(java: Path) -> None:
    assert found(java, SPARK_CONF_DIR="/etc/spark") is None
    assert found(java, XDG_CACHE_HOME="/a folder") is None
    assert found(java.parent / "nowhere") is None
    assert class_archive(java, java, {"SPARK_HOME": str(java.parent / "spark")}) is None
