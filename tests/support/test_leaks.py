"""The leak checks of the suite, each shown to fail: a test run inside a test, with a test that leaks."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A test run with this project's settings and fixtures, in a process of its own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("CI", raising=False)
    pytester.makepyprojecttoml((ROOT / "pyproject.toml").read_text().replace('testpaths = ["tests"]', ""))
    pytester.makeconftest("import tests.conftest as ours\nglobals().update(vars(ours))")
    return pytester


def run(suite: pytest.Pytester, test: str, **outcomes: int) -> str:
    """Run `test` alone and assert its outcomes. Returns what pytest printed."""
    suite.makepyfile(test)
    result = suite.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider")
    result.assert_outcomes(**outcomes)
    return result.stdout.str()


def test_a_task_that_survives_fails_the_test(suite: pytest.Pytester) -> None:
    told = run(
        suite,
        """
        import asyncio

        async def test_leak():
            global kept
            kept = asyncio.create_task(asyncio.Event().wait(), name="forgotten")
        """,
        passed=1,
        errors=1,
    )
    assert "1 task(s) survive the test" in told
    assert "forgotten" in told


def test_a_task_that_was_ended_is_no_leak(suite: pytest.Pytester) -> None:
    run(
        suite,
        """
        import asyncio

        async def test_no_leak():
            asyncio.create_task(asyncio.Event().wait(), name="cancelled").cancel()
        """,
        passed=1,
    )


def test_an_unclosed_socket_fails_the_test(suite: pytest.Pytester) -> None:
    told = run(
        suite,
        """
        import socket

        def test_leak():
            ring = [socket.socket()]
            ring.append(ring)  # only the collector finds it
        """,
        passed=1,
        errors=1,
    )
    assert "ResourceWarning: unclosed <socket.socket" in told


def test_a_thread_that_survives_fails_the_test(suite: pytest.Pytester) -> None:
    told = run(
        suite,
        """
        import threading

        def test_leak():
            threading.Thread(target=threading.Event().wait, name="forgotten", daemon=True).start()
        """,
        passed=1,
        errors=1,
    )
    assert "threads survive the test, something was not closed: forgotten" in told


def test_an_open_sqlite_file_fails_the_test(suite: pytest.Pytester) -> None:
    told = run(
        suite,
        """
        import sqlite3

        def test_leak(sqlite_url):
            global kept
            kept = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
            kept.execute("CREATE TABLE here (id)")
        """,
        passed=1,
        errors=1,
    )
    assert "database files left open" in told


@pytest.mark.postgres
def test_an_open_postgres_session_fails_the_test(suite: pytest.Pytester) -> None:
    told = run(
        suite,
        """
        import psycopg

        def test_leak(postgres_url):
            global kept
            kept = psycopg.connect(postgres_url.replace("+psycopg", ""), application_name="forgotten")
        """,
        passed=1,
        errors=1,
    )
    assert "Postgres sessions left open" in told
    assert "forgotten" in told


@pytest.mark.parametrize(("ci", "outcome"), [("", {"skipped": 2}), ("true", {"errors": 1, "failed": 1})])
def test_a_skipped_postgres_or_spark_test_fails_in_ci_with_its_reason(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: dict[str, int]
) -> None:
    monkeypatch.setenv("CI", ci)
    test = """
        import pytest

        @pytest.mark.postgres
        @pytest.mark.skipif(True, reason="no server here")
        def test_never_begun():
            pass

        @pytest.mark.spark
        def test_given_up():
            pytest.skip("no Java here")
        """
    told = run(suite, test, **outcome)
    assert "no server here" in told
    assert "no Java here" in told


def test_a_missing_server_fails_in_ci_without_a_mark_on_the_test(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("EVENTD_TEST_POSTGRES_BIN", "/nowhere")
    told = run(suite, "def test_it(postgres_url):\n    pass", errors=1)
    assert "not allowed to be skipped in CI: no Postgres programs in /nowhere" in told


def test_a_file_that_skips_itself_fails_in_ci(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    told = run(suite, "import pytest\npytest.skip('no Spark', allow_module_level=True)", errors=1)
    assert "not allowed to be skipped in CI: no Spark" in told


def test_another_skip_or_an_expected_failure_is_no_failure_in_ci(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    test = """
        import pytest

        def test_skipped():
            pytest.skip("only on another system")

        @pytest.mark.postgres
        @pytest.mark.xfail(reason="known")
        def test_known():
            assert False
        """
    told = run(suite, test, skipped=1, xfailed=1)
    assert "only on another system" in told
