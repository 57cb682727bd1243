"""Imports of a command: they take most of its time, so it imports only what it needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventd.testing import NOW
from tests.integration.cli.conftest import EDGE, Api
from tests.support.fresh import make_current

ROOT = Path(__file__).parents[4]
HEAVY = ("aiohttp", "alembic", "cryptography", "psycopg", "rich", "sqlalchemy.dialects.postgresql", "eventd.node")
OF_THE_NODE = ("sqlalchemy", "pydantic", "msgspec", "eventd.settings", "eventd.log", "eventd.api.framework.operations")
PROBE = """
import sys
from eventd.cli.routerctl import main
try:
    main()
except SystemExit as end:
    assert end.code == {code}, end.code
    print([name for name in {heavy} if name in sys.modules])
"""


def loaded(*arguments: str, heavy: tuple[str, ...] = HEAVY, code: int = 0) -> str:
    """What a command that ends with this code loads of what is heavy."""
    probe = [sys.executable, "-c", PROBE.format(heavy=heavy, code=code), *arguments]
    done = subprocess.run(probe, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A node's API, with something declared."""
    (tmp_path / "edge.yaml").write_text(EDGE)
    with Api(f"sqlite:///{tmp_path / 'eventd.db'}") as api:
        loaded("apply", "-f", str(tmp_path / "edge.yaml"), "--server", api.url)
        yield api.url


def test_a_command_on_the_database_loads_no_server_no_cryptography_and_no_other_database(tmp_path: Path) -> None:
    make_current(f"sqlite:///{tmp_path / 'eventd.db'}", now=NOW)
    assert loaded("get", "EventGroup", "--data-dir", str(tmp_path)) == "[]"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
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
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_a_command_on_a_server_loads_nothing_of_what_answers(
    server: str, arguments: tuple[str, ...], code: int
) -> None:
    assert loaded(*arguments, "--server", server, heavy=(*HEAVY, *OF_THE_NODE), code=code) == "[]"


@pytest.mark.parametrize("arguments", [(), ("get",), ("federation",), ("federation", "links")], ids=" ".join)
def test_help_is_there_without_waiting_for_what_the_command_works_with(arguments: tuple[str, ...]) -> None:
    assert loaded(*arguments, "--help", heavy=(*HEAVY, "sqlalchemy", "pydantic", "yaml")) == "[]"


def test_the_version_is_told_without_a_database() -> None:
    assert loaded("--version", heavy=(*HEAVY, "sqlalchemy", "pydantic", "asyncio", "yaml")) == "[]"
