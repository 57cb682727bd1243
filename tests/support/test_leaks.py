"""The leak checks of the suite, each shown to fail: test runs inside tests, with tests that leak or are skipped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
PORT = "POSTGRES_PORT_OF_THE_OUTER_RUN"
CONFTEST = f"""
import itertools, json, os
import pytest
import tests.conftest as ours
from tests.support.postgres import PostgresServer, find_programs

globals().update(vars(ours))

if "{PORT}" in os.environ:
    @pytest.fixture(scope="session")
    def postgres_server():
        server = PostgresServer(find_programs())
        server.port, server._names = int(os.environ["{PORT}"]), itertools.count(1_000_000)
        yield server
        server.stop()


def pytest_collectreport(report):
    if report.outcome != "passed":
        write(report, "collection")


def pytest_runtest_logreport(report):
    write(report, report.when)


def write(report, phase):
    name = report.nodeid.rpartition("::")[2]
    with open("reports", "a") as file:
        print(json.dumps([name, phase, report.outcome, report.longreprtext or str(report.longrepr)]), file=file)
"""
LEAKS = '''
import asyncio, socket, sqlite3, threading
import psycopg
import pytest


async def test_task():
    global task
    task = asyncio.create_task(asyncio.Event().wait(), name="forgotten task")


async def test_ended_task():
    asyncio.create_task(asyncio.Event().wait(), name="cancelled").cancel()


def test_socket():
    ring = [socket.socket()]
    ring.append(ring)  # only the collector finds it


def test_thread():
    threading.Thread(target=threading.Event().wait, name="forgotten thread", daemon=True).start()


def test_process():
    """An orphan, adopted by this process."""
    import subprocess
    subprocess.run(["sh", "-c", "exec sleep 1234 > /dev/null 2>&1 &"], check=True)


def test_ended_process():
    import subprocess
    subprocess.run(["sh", "-c", "exec sleep 0.1 > /dev/null 2>&1 &"], check=True)


def test_signal():
    import signal
    signal.signal(signal.SIGHUP, lambda *_: None)


def test_spark():
    import sys, types
    sys.modules["pyspark"] = types.SimpleNamespace(SparkContext=types.SimpleNamespace(_gateway=object()))


def test_sqlite(sqlite_url):
    global connection
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    connection.execute("CREATE TABLE here (id)")


@pytest.mark.postgres
def test_postgres(postgres_url):
    global session
    session = psycopg.connect(postgres_url.replace("+psycopg", ""), application_name="forgotten session")


def test_nothing():
    """A leak is reported once."""
'''
SKIPS = """
import pytest


@pytest.mark.postgres
@pytest.mark.skipif(True, reason="no server here")
def test_never_begun():
    pass


@pytest.mark.spark
def test_given_up():
    pytest.skip("no Java here")


@pytest.mark.browser
def test_blind():
    pytest.skip("no browser here")


def test_other_skip():
    pytest.skip("only on another system")


@pytest.mark.postgres
@pytest.mark.xfail(reason="known")
def test_known():
    assert False


def test_server_without_a_mark(postgres_url):
    pass
"""
SKIPS_ITSELF = "import pytest\npytest.skip('no Spark', allow_module_level=True)"
PASSED = {"setup": "passed", "call": "passed", "teardown": "passed"}
LEAKED = {**PASSED, "teardown": "failed"}


class Inner(NamedTuple):
    """One test of an inner run: the outcome of each phase, and the reports of those that did not pass."""

    outcomes: dict[str, str]
    told: str


def run(folder: Path, files: Mapping[str, str], *, status: int = 1, **environment: str) -> dict[str, Inner]:
    """Run these files with this project's settings and fixtures, in a process of its own; the result by test.

    With `PORT` in its environment it uses the Postgres server of this run, whose start takes longer than the tests.
    """
    config = (ROOT / "pyproject.toml").read_text().replace('testpaths = ["tests"]', "")
    for name, text in {"pyproject.toml": config, "conftest.py": CONFTEST, **files}.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider"]
    env = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, "--continue-on-collection-errors", f"--basetemp={folder}/tmp"],
        cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == status, f"{done.stdout}{done.stderr}"
    found: dict[str, Inner] = {}
    for line in (folder / "reports").read_text().splitlines():
        name, phase, outcome, told = json.loads(line)
        before = found.get(name, Inner({}, ""))
        found[name] = Inner({**before.outcomes, phase: outcome}, before.told + (told if outcome != "passed" else ""))
    return found


@pytest.fixture(scope="module")
def leaks(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> dict[str, Inner]:
    return run(tmp_path_factory.mktemp("leaks"), {"test_leaks.py": LEAKS}, **{PORT: str(postgres_server.port)})


@pytest.fixture(scope="module")
def skips(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Inner]:
    folder = tmp_path_factory.mktemp("skips")
    return run(folder, {"test_skips.py": SKIPS}, status=0, EVENTD_TEST_POSTGRES_BIN="/nowhere")


@pytest.fixture(scope="module")
def skips_in_ci(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Inner]:
    files = {"test_skips.py": SKIPS, "test_skips_itself.py": SKIPS_ITSELF}
    return run(tmp_path_factory.mktemp("skips_in_ci"), files, CI="true", EVENTD_TEST_POSTGRES_BIN="/nowhere")


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("test_task", ["1 task(s) survive the test", "forgotten task"]),
        ("test_socket", ["ResourceWarning: unclosed <socket.socket"]),
        ("test_thread", ["threads survive the test, something was not closed: forgotten thread"]),
        ("test_process", ["processes survive the test", "sleep 1234"]),
        ("test_signal", ["handlers of signals survive the test: SIGHUP"]),
        ("test_spark", ["Spark was started: use its stand-in, or mark the test with `spark`"]),
        ("test_sqlite", ["database files left open"]),
        ("test_postgres", ["Postgres sessions left open", "forgotten session"]),
    ],
)
def test_what_survives_fails_the_test(leaks: dict[str, Inner], name: str, told: list[str]) -> None:
    assert leaks[name].outcomes == LEAKED
    assert [words for words in told if words not in leaks[name].told] == []


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["test_ended_task", "test_ended_process", "test_nothing"])
def test_what_has_ended_is_no_leak(leaks: dict[str, Inner], name: str) -> None:
    assert leaks[name].outcomes == PASSED


def test_a_skipped_test_with_postgres_spark_or_a_browser_is_skipped(skips: dict[str, Inner]) -> None:
    assert skips["test_never_begun"].outcomes == {"setup": "skipped", "teardown": "passed"}
    assert "no server here" in skips["test_never_begun"].told
    assert skips["test_given_up"].outcomes == {**PASSED, "call": "skipped"}
    assert "no Java here" in skips["test_given_up"].told
    assert skips["test_blind"].outcomes == {**PASSED, "call": "skipped"}


def test_a_skipped_test_with_postgres_spark_or_a_browser_fails_in_ci_with_its_reason(
    skips_in_ci: dict[str, Inner],
) -> None:
    assert skips_in_ci["test_never_begun"].outcomes == {"setup": "failed", "teardown": "passed"}
    assert "no server here" in skips_in_ci["test_never_begun"].told
    assert skips_in_ci["test_given_up"].outcomes == {**PASSED, "call": "failed"}
    assert "no Java here" in skips_in_ci["test_given_up"].told
    assert skips_in_ci["test_blind"].outcomes == {**PASSED, "call": "failed"}
    assert "no browser here" in skips_in_ci["test_blind"].told


def test_a_missing_server_fails_in_ci_without_a_mark_on_the_test(skips_in_ci: dict[str, Inner]) -> None:
    found = skips_in_ci["test_server_without_a_mark"]
    assert found.outcomes == {"setup": "failed", "teardown": "passed"}
    assert "not allowed to be skipped in CI: no Postgres programs in /nowhere" in found.told


def test_a_file_that_skips_itself_fails_in_ci(skips_in_ci: dict[str, Inner]) -> None:
    assert skips_in_ci["test_skips_itself.py"].outcomes == {"collection": "failed"}
    assert "not allowed to be skipped in CI: no Spark" in skips_in_ci["test_skips_itself.py"].told


def test_another_skip_or_an_expected_failure_is_no_failure_in_ci(skips_in_ci: dict[str, Inner]) -> None:
    assert skips_in_ci["test_other_skip"].outcomes == {**PASSED, "call": "skipped"}
    assert "only on another system" in skips_in_ci["test_other_skip"].told
    assert skips_in_ci["test_known"].outcomes == {**PASSED, "call": "skipped"}
