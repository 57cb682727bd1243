"""Tests the installation: the wheel's content, the lock files, and the set-up when it fails half-way."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import eventd
from deploy.release.contents import check_contents, expected_in_wheel
from deploy.release.source import BuildFailed, shared_folders
from deploy.release.trial import try_wheel
from deploy.release.wheel import Built, build, build_again
from eventd.audit.generate import GeneratorSettings
from eventd.cli.assets.installed import PURPOSES
from eventd.cli.audit.generate import generate
from tests.support.source import ROOT, tracked_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WITH_SPARK = ("postgres", "lake", "audit", "delta")
OLDEST = "requirements-spark-oldest.lock"
INSTALLED = {"requirements-runtime.lock": ("postgres", "quic"), "requirements-lake.lock": ("postgres", "quic", "lake")}
"""What images and Debian packages hold, besides the wheel."""
LOCKS = {
    "requirements.lock": ("postgres", "dev"),
    "requirements-audit.lock": WITH_SPARK,
    OLDEST: WITH_SPARK,
    **INSTALLED,
}
BUILD = "requirements-build.lock"
"""Holds what builds the wheel, where the tools of the tests are not: in images and Debian packages."""
BROWSER = "requirements-browser.lock"
"""Holds a group only: it is installed beside requirements.lock."""
FUZZ = "requirements-fuzz.lock"
"""Holds a group only: it is installed beside requirements-lake.lock."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The source archive, and the wheel from it. The build backend comes from the lock, so nothing is downloaded."""
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(built: Built) -> Path:
    return built.wheel


@pytest.fixture(scope="module")
def content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_and_its_source_archive_hold_what_is_tracked_and_nothing_else(built: Built) -> None:
    """Code, templates, static files, migrations, and the files below `share`, such as manual pages."""
    check_contents(built)
    expected = expected_in_wheel()
    assert {"eventd/py.typed", "federation/py.typed", "pyspark_eventd/__init__.py"} <= expected
    assert any(name.startswith("eventd/migrations/versions/") for name in expected)
    assert any(name.endswith("/share/man/man8/routerd-eventd.8") for name in expected)


def test_every_folder_of_files_for_operators_is_installed_and_has_a_purpose() -> None:
    folders = {path.split("/")[1] for path in tracked_files() if path.startswith("deploy/")}
    installed = {source.split("/")[1] for source in shared_folders()}
    assert folders - installed == {"container", "debian", "release", "spark"}, (
        "name the folder in shared-data of pyproject.toml"
    )
    assert installed <= PURPOSES.keys(), "say in eventd/cli/assets/installed.py what the folder is for"


@pytest.mark.parametrize(("change", "told"), [("eventd/errors.py", "lacks"), ("eventd/stray.log", "not tracked")])
def test_a_wheel_that_lacks_a_file_or_holds_a_stray_one_is_refused(
    built: Built, tmp_path: Path, change: str, told: str
) -> None:
    changed = tmp_path / built.wheel.name
    with zipfile.ZipFile(built.wheel) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            if name != change:
                new.writestr(name, old.read(name))
        if change not in old.namelist():
            new.writestr(change, "")
    with pytest.raises(BuildFailed, match=f"{told}.*{change}"):
        check_contents(built._replace(wheel=changed))


def test_two_builds_of_a_commit_are_equal_byte_by_byte(built: Built, tmp_path: Path) -> None:
    """The second one is built from a copy of the checkout, under another umask."""
    again = build_again(tmp_path)
    assert [file.read_bytes() for file in again] == [file.read_bytes() for file in built]


def test_the_generator_of_the_wheel_has_no_setting_that_its_command_does_not_offer() -> None:
    """Every other shape of a federation is for tests, and is defined in tests/support."""
    assert set(GeneratorSettings.__struct_fields__) <= set(inspect.signature(generate).parameters)


def test_the_wheel_installs_both_commands_and_carries_the_licence(content: dict[str, bytes]) -> None:
    (told,) = [content[name].decode() for name in content if name.endswith(".dist-info/entry_points.txt")]
    assert "routerd-eventd = eventd.cli.routerd_eventd:main" in told
    assert "routerctl = eventd.cli.routerctl:main" in told
    licences = [name.partition("/licenses/")[2] for name in content if ".dist-info/licenses/" in name]
    vendored = [path for path in tracked_files() if path.endswith(".LICENSE")]
    assert vendored
    assert sorted(licences) == sorted(["LICENSE", *vendored])


def test_the_wheel_works_without_the_project_and_without_what_it_does_not_depend_on(wheel: Path) -> None:
    """check, migrations of both databases, serve, the console with each static file, manual pages, assets."""
    try_wheel(wheel)


def test_one_version_is_told_everywhere() -> None:
    assert PROJECT["project"]["version"] == eventd.__version__
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("name", [*LOCKS, BROWSER, FUZZ, BUILD])
def test_a_lock_has_hashes_and_no_addresses(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-|.* @ )", text.replace("    --hash=", ""), re.MULTILINE)
    assert all(
        re.search(rf"^{re.escape(pin)}.*\\\n    --hash=sha256:", text, re.MULTILINE) for pin in pins(name).values()
    )


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_satisfies_the_project(name: str) -> None:
    locked = pins(name)
    for requirement in requirements(*LOCKS[name]):
        version = locked.get(canonicalize_name(requirement.name), "==nothing").split("==")[1]
        assert requirement.specifier.contains(version), f"{name} has {version}, wanted is {requirement}; run make lock"


@pytest.mark.parametrize(("lock", "name"), [(BROWSER, "browser"), (FUZZ, "fuzz")])
def test_the_lock_of_a_group_is_that_of_the_group(lock: str, name: str) -> None:
    wanted = {canonicalize_name(each.name): str(each.specifier) for each in group(name)}
    assert wanted.items() <= {name: pin.removeprefix(name) for name, pin in pins(lock).items()}.items()


def test_the_lock_of_the_build_is_that_of_its_backend() -> None:
    (backend,) = map(Requirement, PROJECT["build-system"]["requires"])
    assert pins(BUILD)["hatchling"] == str(backend)


def test_all_locks_agree_but_for_the_version_of_spark() -> None:
    found: dict[str, set[str]] = {}
    for pin in (pin for lock in (*LOCKS, BROWSER, FUZZ, BUILD) for pin in pins(lock).items()):
        found.setdefault(pin[0], set()).add(pin[1])
    assert [name for name, versions in found.items() if len(versions) > 1] == ["pyspark"]


def test_tests_run_on_the_oldest_and_on_the_newest_spark_that_is_allowed() -> None:
    (allowed,) = (one for one in requirements("audit") if one.name == "pyspark")
    oldest, newest = (Version(pins(lock)["pyspark"].split("==")[1]) for lock in (OLDEST, "requirements-audit.lock"))
    assert str(allowed.specifier) == f"<{newest.major}.{newest.minor + 1},>={oldest.major}.{oldest.minor}"
    assert oldest.micro == 0


@pytest.mark.parametrize("name", INSTALLED)
def test_a_lock_of_what_is_installed_holds_no_tool(name: str) -> None:
    assert not {"pytest", "hatchling", "setuptools", "mypy"} & pins(name).keys()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that `make venv` reads, next to a fake Python."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make_venv(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    pretended = folder / "python"
    pretended.write_text(f"#!/bin/sh\n{python}\n")
    pretended.chmod(0o755)
    command = ["make", "--no-print-directory", "venv", f"PYTHON={pretended}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def told_by(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what is on stderr besides make's own closing line."""
    assert done.returncode != 0
    return [line for line in done.stderr.splitlines() if not line.startswith("make")]


def test_an_old_python_is_refused_in_one_line(copy: Path) -> None:
    done = make_venv(copy, 'case "$2" in *print*) echo 3.9.2;; *) exit 1;; esac')
    (told,) = told_by(done)
    assert told.startswith("Python 3.11 or newer is needed")
    assert f"{copy}/python is 3.9.2" in told
    assert not (copy / ".venv").exists()


def test_a_python_without_venv_is_told_what_to_install(copy: Path) -> None:
    done = make_venv(copy, 'case "$2" in *print*) echo 3.11.2;; *ensurepip*) exit 1;; esac')
    (told,) = told_by(done)
    assert "install its venv package" in told


def test_an_interrupted_setup_is_begun_again_from_nothing(copy: Path) -> None:
    """pip is killed half-way: the next run does not build on what it left."""
    venv = copy / ".venv"
    make_environment = (
        f'mkdir -p {venv}/bin; printf "#!/bin/sh\\nexit 137\\n" >{venv}/bin/python; chmod +x {venv}/bin/python'
    )
    python = f'case "$2" in *print*) echo 3.11.2;; venv) echo "$3" >>{copy}/made; {make_environment};; esac'
    for _ in range(2):
        assert make_venv(copy, python).returncode != 0
        assert venv.exists()
        assert not (venv / ".locked").exists()
        assert not (venv / ".ready").exists()
    assert (copy / "made").read_text().splitlines() == ["--clear", "--clear"]


def run_ci(folder: Path, make: str) -> subprocess.CompletedProcess[str]:
    """Run `.ci/run` with a fake make, and nothing to install."""
    for name, does in (
        ("make", make),
        ("chromium-headless-shell", ""),
        ("strace", ""),
        ("go", ""),
        ("mandoc", ""),
        ("shellcheck", ""),
        ("prometheus", ""),
    ):
        pretended = folder / name
        pretended.write_text(f"#!/bin/sh\n{does}\n")
        pretended.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "CI": ""}
    return subprocess.run([ROOT / ".ci" / "run"], env=environment, capture_output=True, text=True)


def test_ci_runs_the_tests_as_ci_and_keeps_their_status(tmp_path: Path) -> None:
    passed = run_ci(tmp_path, 'echo "$@ CI=$CI"')
    assert (passed.returncode, passed.stdout, passed.stderr) == (0, "test CI=true\n", "")
    assert run_ci(tmp_path, "exit 7").returncode == 7


@pytest.mark.parametrize(
    "left",
    [
        "setsid sleep 600 >/dev/null 2>&1 &",
        "setsid env -i sleep 600 >/dev/null 2>&1 &",  # it has nothing of the environment of the run
        "setsid env -i sh -c 'sleep 600 & exit' >/dev/null 2>&1 &",  # nor a parent
    ],
)
def test_ci_fails_for_a_process_left_behind_and_ends_it(tmp_path: Path, left: str) -> None:
    done = run_ci(tmp_path, left)
    assert done.returncode == 1
    told = re.fullmatch(r"left behind: pid (\d+): sleep 600 \n", done.stderr)
    assert told, done.stderr
    assert not Path(f"/proc/{told[1]}").exists()


def test_ci_passes_for_a_process_that_ends_by_itself(tmp_path: Path) -> None:
    done = run_ci(tmp_path, "setsid sleep 0.5 >/dev/null 2>&1 &")
    assert (done.returncode, done.stderr) == (0, "")


def requirements(*groups: str) -> Iterator[Requirement]:
    project = PROJECT["project"]
    extras, development = project["optional-dependencies"], PROJECT["dependency-groups"]
    chosen = [extras.get(group) or development[group] for group in groups]
    yield from map(Requirement, sum(chosen, project["dependencies"]))
    if "dev" in groups:  # the project is installed and built without isolation
        yield from map(Requirement, PROJECT["build-system"]["requires"])


def group(name: str) -> list[Requirement]:
    return [Requirement(each) for each in PROJECT["dependency-groups"][name]]


def pins(lock: str) -> dict[str, str]:
    """Return canonical name → `name==version`."""
    found = re.findall(r"^([A-Za-z0-9._-]+)(==[^\s;]+)", (ROOT / lock).read_text(), re.MULTILINE)
    pinned: dict[str, str] = {}
    for name, version in found:
        pinned.setdefault(canonicalize_name(name), name + version)
    return pinned


def test_each_extra_is_described_where_the_installation_is() -> None:
    text = (ROOT / "docs" / "operations" / "running.md").read_text()
    assert [extra for extra in PROJECT["project"]["optional-dependencies"] if f"| `{extra}` |" not in text] == []
