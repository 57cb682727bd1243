"""What a command loads: nearly all of its time goes there, so it takes no more than it works with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eventd.testing import NOW
from tests.support.fresh import make_current

ROOT = Path(__file__).parents[3]
HEAVY = ("aiohttp", "alembic", "cryptography", "psycopg", "rich", "sqlalchemy.dialects.postgresql", "eventd.node")
PROBE = """
import sys
from eventd.cli.control import main
try:
    main()
except SystemExit:
    print([name for name in {heavy} if name in sys.modules])
"""


def loaded(*arguments: str, heavy: tuple[str, ...] = HEAVY) -> str:
    """What a command loads of what is heavy."""
    probe = [sys.executable, "-c", PROBE.format(heavy=heavy), *arguments]
    done = subprocess.run(probe, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_a_command_on_the_database_loads_no_server_no_cryptography_and_no_other_database(tmp_path: Path) -> None:
    make_current(f"sqlite:///{tmp_path / 'eventd.db'}", now=NOW)
    assert loaded("get", "EventGroup", "--data-dir", str(tmp_path)) == "[]"


@pytest.mark.parametrize("arguments", [(), ("get",), ("federation",), ("federation", "links")], ids=" ".join)
def test_help_is_there_without_waiting_for_what_the_command_works_with(arguments: tuple[str, ...]) -> None:
    assert loaded(*arguments, "--help", heavy=(*HEAVY, "sqlalchemy", "pydantic", "yaml")) == "[]"


def test_the_version_is_told_without_a_database() -> None:
    assert loaded("--version", heavy=(*HEAVY, "sqlalchemy", "pydantic", "asyncio", "yaml")) == "[]"
