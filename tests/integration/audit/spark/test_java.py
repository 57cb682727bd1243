"""Which Java is used, and which of Spark's settings are left out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from eventd.audit.spark import java, session
from eventd.audit.spark.java import JavaNotFound, find_java, java_home


def pretended(folder: Path, version: str, *, release: bool = True) -> Path:
    """A Java that prints what it is called with, a word a line."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    told = f'[ "$1" = -version ] && {{ echo \'openjdk version "{version}"\' >&2; exit; }}'
    program.write_text(f'#!/bin/sh\n{told}\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture(autouse=True)
def wheel(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The Java of the wheel; none unless a test says so."""
    here: list[Path] = []

    class Wheel:
        @property
        def JAVA_HOME(self) -> Path:
            return here[0]

    def load(name: str) -> Wheel:
        if not here:
            raise ImportError(name)
        return Wheel()

    monkeypatch.setattr(java, "import_module", load)
    return here


def test_java_home_comes_before_path_and_path_before_the_wheel(tmp_path: Path, wheel: list[Path]) -> None:
    named, found = pretended(tmp_path / "named", "21.0.1"), pretended(tmp_path / "found", "17.0.15")
    wheel.append(pretended(tmp_path / "wheel", "25.0.2"))
    path = str(found / "bin")
    assert find_java({"JAVA_HOME": str(named), "PATH": path}) == (named, 21)
    assert find_java({"PATH": path}) == (found, 17)
    assert find_java({}) == (wheel[0], 25)


def test_an_old_java_is_passed_over(tmp_path: Path, wheel: list[Path]) -> None:
    old = pretended(tmp_path / "old", "1.8.0_392", release=False)
    older = pretended(tmp_path / "older", "11.0.2")
    wheel.append(pretended(tmp_path / "wheel", "25.0.2"))
    assert find_java({"JAVA_HOME": str(older), "PATH": str(old / "bin")}).version == 25


def test_without_any_it_is_said_where_one_was_looked_for(tmp_path: Path) -> None:
    old = pretended(tmp_path / "old", "1.8.0_392", release=False)
    with pytest.raises(JavaNotFound) as refused:
        find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(old / "bin")})
    told = str(refused.value)
    assert f"JAVA_HOME: there is no Java at {tmp_path / 'nothing'}" in told
    assert f"PATH: {old} is Java 8" in told
    assert "pip install '.[audit]'" in told


def test_only_the_modules_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    real = pretended(tmp_path / "it's real", "17.0.15")
    home = java_home({"JAVA_HOME": str(real), "HOME": str(tmp_path)})
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=ALL", "--add-opens=x/y=z", "", "*"]
    told = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert told.split("\n")[:-1] == [word for word in given if word != "--add-modules=jdk.incubator.vector"]
    assert (home / "release").read_text() == (real / "release").read_text()


def test_it_is_made_once_and_never_of_itself(tmp_path: Path) -> None:
    real = pretended(tmp_path / "real", "17.0.15")
    around = {"JAVA_HOME": str(real), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = java_home(around)
    made = home.stat().st_mtime_ns
    assert java_home(around) == home
    assert java_home({**around, "JAVA_HOME": str(home)}) == home
    assert home.stat().st_mtime_ns == made
    assert [entry.name for entry in home.parent.iterdir()] == [home.name]


def test_what_spark_starts_runs_on_the_java_of_the_wheel_where_there_is_no_other(
    tmp_path: Path, wheel: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors inherit the environment of the session."""
    wheel.append(pretended(tmp_path / "wheel", "25.0.2"))
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path), "PATH": str(tmp_path / "nothing")})
    session._launch_settings("local-cluster[1,1,1024]", "1g", tmp_path, [])
    started = Path(os.environ["JAVA_HOME"], "bin", "java")
    assert started.read_text().endswith(f"exec '{wheel[0]}/bin/java' \"$@\"\n")


def test_without_a_home_that_can_be_written_it_is_made_for_the_time_being(tmp_path: Path) -> None:
    real = pretended(tmp_path / "real", "17.0.15")
    (tmp_path / "file").touch()
    home = java_home({"JAVA_HOME": str(real), "HOME": str(tmp_path / "file")})
    assert (home / "bin" / "java").exists()
    assert not home.is_relative_to(tmp_path / "file")
