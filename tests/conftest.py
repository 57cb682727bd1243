"""Fixtures of the whole suite: both databases, child processes, and the leak checks."""

from __future__ import annotations

import gc
import os
import random
import secrets
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import is_hypothesis_test, settings
from hypothesis.database import DirectoryBasedExampleDatabase, MultiplexedDatabase, ReadOnlyDatabase
from hypothesis.internal.conjecture import providers

from eventd.testing import NOW
from tests.support.child_processes import adopt_orphans
from tests.support.fresh import SharedDatabase, template
from tests.support.leaks import no_leaks, no_task_survives, open_files
from tests.support.postgres import PostgresServer, server_or_skip
from tests.support.processes import Processes
from tests.support.shares import in_shares
from tests.support.skips import mark_needs, pytest_make_collect_report, pytest_runtest_makereport
from tests.support.source import ROOT
from tests.support.spark import session_or_skip
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "no_leaks",
    "no_task_survives",
    "pytest_make_collect_report",
    "pytest_runtest_makereport",
]

# No deadline per example: tests of this suite wait for conditions, and the machine is shared. Few examples by default,
# because each run tries others; `make suite` selects `steady`, `make properties` selects `thorough`. The blob
# that a failure prints reproduces its input; paste the printed input as an `@example` next to the fix. In CI,
# hypothesis by default tries the same inputs every time: `derandomize` is set against that. Inputs that failed here, or
# that tests/examples keeps for everybody, are tried first.
EXAMPLES = MultiplexedDatabase(
    DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples"),
    ReadOnlyDatabase(DirectoryBasedExampleDatabase(ROOT / "tests" / "examples")),
)
for _name, _examples in (("quick", 10), ("steady", 12), ("thorough", 100)):
    settings.register_profile(
        _name, max_examples=_examples, deadline=None, print_blob=True, derandomize=False, database=EXAMPLES
    )
settings.load_profile("quick")
# Hypothesis mixes in constants of the modules that are loaded: one seed would try other inputs after other tests.
providers.is_local_module_file = lambda path: False  # type: ignore[attr-defined,assignment]

# jsonschema would load it, which compiles a grammar for a second in each process: no schema here has a format of IRIs.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

gc.disable()  # until the tests are collected: see `pytest_collection`
adopt_orphans()  # `no_leaks` finds what a killed node leaves behind


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Use a new random seed for each run, so that every run tries other inputs; a seed can be given to repeat a run.

    Hypothesis does not receive the seed itself: with one, it neither keeps nor replays failures. See `seeded`.
    """
    given, config.option.hypothesis_seed = config.option.hypothesis_seed, None
    if not hasattr(config.option, "inputs_seed"):  # workers of pytest-xdist receive it
        config.option.inputs_seed = str(secrets.randbelow(2**32)) if given is None else given


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the seeds at the end, because a quiet run leaves out the header."""
    seeds = {"hypothesis": config.option.inputs_seed, "randomly": config.getoption("randomly_seed", None)}
    told = (f"--{name}-seed={seed}" for name, seed in seeds.items() if seed is not None)
    terminalreporter.write_line(f'the same inputs and order again: ARGS="{" ".join(told)}"')


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave out the collections of garbage: what is imported and collected stays, and they take half of the time."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark the tests before `-m` selects, and order those that are left for the processes of pytest-xdist."""
    mark_needs(items)
    for item in items:
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            _seed(item.function, config)
    yield
    slow: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        (slow if "acceptance" in item.path.parts or _of_a_world(item) else others).append(item)
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = in_shares(slow, others, processes, file=lambda item: item.nodeid if _of_a_world(item) else item.path)


def _of_a_world(item: pytest.Item) -> bool:
    """Return whether a test opens all pages of a node in a browser: one of them takes as long as all other tests."""
    return "world" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server for this test process (each worker of pytest-xdist has its own): `create_database`, `drop_database`."""
    with server_or_skip() as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two cores, started once for this test process. Tests have to stop the streams that they start."""
    with session_or_skip(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def sqlite_url(tmp_path: Path) -> Iterator[str]:
    """The URL of a SQLite file that does not exist yet. A connection left open on it fails the test."""
    file = tmp_path / "eventd.db"
    yield f"sqlite:///{file}"
    left = open_files(file)
    assert not left, f"database files left open: {', '.join(left)}"


@pytest.fixture
def migrated_sqlite_url(sqlite_url: str) -> str:
    """The URL of a SQLite file with the current schema and an empty log."""
    shutil.copyfile(template(), sqlite_url.removeprefix("sqlite:///"))
    return sqlite_url


@pytest.fixture
def make_postgres_database(postgres_server: PostgresServer) -> Callable[[], str]:
    """Creates the database of `postgres_url`: an empty one."""
    return postgres_server.create_database


@pytest.fixture
def postgres_url(postgres_server: PostgresServer, make_postgres_database: Callable[[], str]) -> Iterator[str]:
    """The URL of a new Postgres database, as `make_postgres_database` creates it. A session left open on it fails the
    test."""
    url = make_postgres_database()
    yield url
    try:
        _wait_until_closed(postgres_server, url)
    finally:
        postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def _shared_postgres(postgres_server: PostgresServer) -> Iterator[SharedDatabase]:
    url = postgres_server.create_database()
    shared = SharedDatabase(url, now=NOW)
    yield shared
    shared.close()
    postgres_server.drop_database(url)


@pytest.fixture
def migrated_postgres_url(postgres_server: PostgresServer, _shared_postgres: SharedDatabase) -> Iterator[str]:
    """The URL of a Postgres database with the current schema and an empty log. A session left open on it fails the
    test."""
    yield _shared_postgres.url
    try:
        _wait_until_closed(postgres_server, _shared_postgres.url)
    finally:
        _shared_postgres.empty()


def _wait_until_closed(server: PostgresServer, url: str) -> None:
    """Wait until the server notices that clients have closed or were killed."""
    try:
        wait_for(lambda: not server.sessions(url), "all sessions of the test to be closed", seconds=5, every=0.002)
    except AssertionError:
        pytest.fail("Postgres sessions left open:\n" + "\n".join(server.sessions(url)))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database: the test runs once on SQLite and once on Postgres."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def migrated_url(request: pytest.FixtureRequest) -> str:
    """A database with the current schema and an empty log: the test runs once on SQLite and once on Postgres."""
    url: str = request.getfixturevalue(f"migrated_{request.param}_url")
    return url


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Randomness of this test: other in each run, the same again with the seed that the run prints."""
    return random.Random(f"{request.config.getoption('randomly_seed', 0)} {request.node.nodeid}")


@pytest.fixture
def seeded(request: pytest.FixtureRequest) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a property that a test defines itself: its inputs come from the seed that the run prints."""
    return lambda prop: _seed(prop, request.config)


def _seed(prop: Any, config: pytest.Config) -> Any:
    # As `hypothesis.seed` does, which would also take the database of failures away.
    prop._hypothesis_internal_use_seed = int(config.option.inputs_seed)
    return prop


@pytest.fixture
def processes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Processes]:
    """Child processes that end with the test, before the databases they use are checked for open connections."""
    for name in ("database_url", "sqlite_url", "postgres_url", "migrated_url"):
        if name in request.fixturenames:
            request.getfixturevalue(name)
    running = Processes(tmp_path / "processes")
    try:
        yield running
    finally:
        running.close()
