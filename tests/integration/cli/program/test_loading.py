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

from eventd.testing import NOW
from tests.integration.cli.conftest import EDGE, Api
from tests.support.fresh import make_current

ROOT = Path(__file__).parents[4]
HEAVY = ("aiohttp", "alembic", "cryptography", "psycopg", "rich", "sqlalchemy.dialects.postgresql", "eventd.node")
OF_THE_NODE = (
    "sqlalchemy",
    "pydantic",
    "msgspec",
    "eventd.settings.model",
    "eventd.log",
    "eventd.api.framework.operations",
)
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


def test_a_command_on_the_database_loads_no_server_no_cryptography_and_no_other_database(tmp_path: Path) -> None:
    make_current(f"sqlite:///{tmp_path / 'eventd.db'}", now=NOW)
    load_nothing_heavy((("get", "EventGroup", "--data-dir", str(tmp_path)), 0, HEAVY))


def test_a_command_on_a_server_loads_nothing_of_what_answers(server: str, tmp_path: Path) -> None:
    (tmp_path / "edge.yaml").write_text(EDGE)
    load_nothing_heavy(
        *(
            ((*words, "--server", server), code, (*HEAVY, *OF_THE_NODE))
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
    light = (*HEAVY, "sqlalchemy", "pydantic", "yaml")
    helps = ((), ("get",), ("federation",), ("federation", "links"))
    load_nothing_heavy(
        (("--version",), 0, (*light, "asyncio")),
        *(((*words, "--help"), 0, (*light, "asyncio", "ssl", "http")) for words in helps),
    )
