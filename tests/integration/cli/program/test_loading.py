"""Imports of a command: they take most of its time, so it imports only what it needs.

The commands of one test run one after the other in one new interpreter: what one of them loads stays loaded, and is
found.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.cli.conftest import EDGE, Api

ROOT = Path(__file__).parents[4]
HEAVY = ("aiohttp", "qh3", "alembic", "cryptography", "psycopg", "pyspark", "rich", "sqlalchemy", "yaml", "eventd.node")
HEAVY_BUT_YAML = tuple(name for name in HEAVY if name != "yaml")
OF_THE_NODE = ("pydantic", "msgspec", "eventd.settings.model", "eventd.log", "eventd.api.framework.operations")
OF_FEW_NODES = (
    *("alembic", "opentelemetry", "psycopg", "rich", "sqlalchemy", "yaml"),
    *("fsspec", "multiprocessing", "numpy", "pandas", "pyarrow", "pyspark", "eventd.audit", "eventd.bench"),
)
"""Modules for Postgres, settings files, plugins in YAML and lakes."""
PROBE = """
import json, sys
from eventd.cli.routerctl import main
for words, code, heavy in json.loads(sys.argv[1]):
    sys.argv = ["routerctl", *words]
    try:
        main()
    except SystemExit as end:
        found = [name for name in heavy if name in sys.modules]
        assert (end.code, found) == (code, []), f"{words} exited with status {end.code} and loaded {found}"
    else:
        raise AssertionError(f"{words} did not exit")
print("every command ended")
"""

SERVE = """
import os, pathlib, signal, sys, threading, time
folder, *unwanted = sys.argv[1:]

def stop():
    while not pathlib.Path(folder, "port").exists():
        time.sleep(0.01)
    print(*(name for name in unwanted if name in sys.modules))
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=stop, daemon=True).start()
from eventd.cli.routerd_eventd import main
sys.argv = ["routerd-eventd", "serve", "--data-dir", folder, "--api-listen", "127.0.0.1:0"]
sys.argv += ["--port-file", f"{folder}/port"]
main()
"""

Case = tuple[Sequence[str], int, Sequence[str]]
"""A command, its exit status, and the modules that it must not load."""


def load_nothing_heavy(*cases: Case) -> None:
    """Run the commands in a new interpreter; fail if one of them, or one before it, loads what it must not."""
    probe = [sys.executable, "-c", PROBE, json.dumps(cases)]
    done = subprocess.run(probe, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["every command ended"]), done.stderr


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A node's API."""
    with Api(f"sqlite:///{tmp_path / 'eventd.db'}") as api:
        yield api.url


def declare_edge(folder: Path) -> None:
    """Create a database in the folder, with a group whose peer is away, by a command that loads YAML alone."""
    (folder / "secret").write_text("a secret of the group")
    (folder / "secret").chmod(0o600)
    (folder / "edge.yaml").write_text(EDGE.replace("/nowhere/secret", str(folder / "secret")))
    apply = ("apply", "-f", str(folder / "edge.yaml"), "--data-dir", str(folder))
    load_nothing_heavy((apply, 0, HEAVY_BUT_YAML))


def test_a_command_on_the_database_loads_no_server_no_cryptography_and_no_sql_toolkit(tmp_path: Path) -> None:
    declare_edge(tmp_path)
    load_nothing_heavy(
        *(
            ((*words, "--data-dir", str(tmp_path)), code, HEAVY)
            for words, code in (
                (("get", "EventGroup"), 0),
                (("get", "all", "-o", "json"), 0),
                (("federation", "status"), 0),
                (("federation", "links"), 0),
                (("federation", "event", "emit", "--type", "t", "--subject", "s"), 0),
                (("federation", "event", "list"), 0),
                (("federation", "event", "deliveries"), 0),
                (("federation", "dead-letters", "list"), 0),
                (("subscription", "list"), 0),
                (("plugin", "runs"), 0),
                (("dynamic", "list"), 0),
                (("key", "list"), 0),
                (("callback", "list"), 0),
                (("topic", "put", "orders"), 0),
                (("topic", "list"), 0),
                (("topic", "describe", "orders"), 0),
                (("topic", "write", "orders", "{}"), 0),
                (("topic", "read", "orders"), 0),
                (("router", "list"), 0),
                (("stream", "create", "t1/default/orders"), 0),
                (("stream", "list"), 0),
                (("stream", "describe", "t1/default/orders"), 0),
                (("get", "ep", "nowhere"), 3),
            )
        )
    )


def test_a_node_loads_what_it_needs_for_its_own_groups_alone(tmp_path: Path) -> None:
    """Its first start included, which creates the database."""
    for _ in range(2):
        serve = [sys.executable, "-c", SERVE, str(tmp_path), *OF_FEW_NODES]
        done = subprocess.run(serve, cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
        declare_edge(tmp_path)


def test_a_command_on_a_server_loads_nothing_of_what_answers(server: str, tmp_path: Path) -> None:
    (tmp_path / "edge.yaml").write_text(EDGE)
    load_nothing_heavy(
        *(
            ((*words, "--server", server), code, (*HEAVY_BUT_YAML, *OF_THE_NODE))
            for words, code in (
                (("apply", "-f", str(tmp_path / "edge.yaml")), 0),
                (("get", "EventGroup"), 0),
                (("get", "all", "-o", "json"), 0),
                (("describe", "eg", "edge"), 0),
                (("federation", "status"), 0),
                (("federation", "links", "--group", "edge"), 0),
                (("federation", "event", "list", "--group", "edge", "--limit", "5"), 0),
                (("federation", "event", "emit", "--group", "edge", "--type", "t", "--subject", "s"), 0),
                (("federation", "event", "deliveries", "--group", "edge", "--status", "failed"), 0),
                (("subscription", "list"), 0),
                (("plugin", "runs", "--limit", "3"), 0),
                (("doctor",), 0),
                (("get", "ep", "nowhere"), 3),
                (("get", "nothing"), 3),
            )
        )
    )


def test_help_and_version_are_there_without_waiting_for_what_a_command_works_with() -> None:
    light = (*HEAVY, "pydantic")
    helps = (
        (),
        ("get",),
        ("federation",),
        ("federation", "links"),
        ("stream",),
        ("stream", "publish"),
        ("cache", "get"),
    )
    load_nothing_heavy(
        (("--version",), 0, (*light, "asyncio")),
        *(((*words, "--help"), 0, (*light, "asyncio", "ssl", "http")) for words in helps),
    )
