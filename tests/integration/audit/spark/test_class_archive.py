"""Where the classes of Java are kept for a fast start, and when they are used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eventd.audit.spark.class_archive import ClassArchive, NoClassArchive, class_archive


@pytest.fixture
def java(tmp_path: Path) -> Path:
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17"')
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return tmp_path / "java"


def found(java: Path, **more: str) -> ClassArchive:
    spark = {"SPARK_HOME": str(java.parent / "spark"), "XDG_CACHE_HOME": str(java.parent / "cache")}
    return class_archive(java, java.parent, {**spark, **more})


def test_an_archive_is_used_once_java_has_written_it(java: Path, tmp_path: Path) -> None:
    archive = found(java)
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


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"SPARK_CONF_DIR": "/etc/spark"}, r"settings of your own \(SPARK_CONF_DIR=/etc/spark\)"),
        ({"XDG_CACHE_HOME": "/a folder"}, "^/a folder/routerd-eventd/spark-[0-9a-f]+.jsa has a space"),
        ({"XDG_CACHE_HOME": ""}, "neither XDG_CACHE_HOME nor HOME is set"),
        ({"SPARK_HOME": "/nowhere"}, "/nowhere/jars: No such file or directory"),
    ],
)
def test_the_cause_is_named_for_which_there_is_no_archive(java: Path, environ: dict[str, str], reason: str) -> None:
    with pytest.raises(NoClassArchive, match=reason):
        found(java, **environ)


def test_a_temporary_folder_that_java_cannot_be_told_is_named(java: Path) -> None:
    with pytest.raises(NoClassArchive, match=r"^/a folder has a space"):
        class_archive(java, Path("/a folder"), {"SPARK_HOME": str(java.parent / "spark"), "XDG_CACHE_HOME": "/cache"})
