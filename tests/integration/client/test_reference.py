"""The page about the client: its first example runs, and all names in it exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import eventd.client
from eventd.client.queues import Queues
from eventd.client.routers import Routers
from eventd.client.topics import Topics
from tests.support.v0 import Server

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "client.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


async def test_the_first_example_runs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    program, _, run = EXAMPLES[0].partition("\n\nasyncio.run(")
    assert run == "main())\n"
    scope: dict[str, object] = {}
    exec(compile(program.replace("http://127.0.0.1:8780", server.url), "client.md", "exec"), scope)
    await scope["main"]()  # type: ignore[operator]
    assert capsys.readouterr().out == "[1]\n1 demo {'n': 1}\n"


def test_every_call_on_the_page_is_there() -> None:
    calls = re.findall(r"`?(topics|routers|queues)\.(\w+)\(", PAGE)
    families = {"topics": Topics, "routers": Routers, "queues": Queues}
    assert len(calls) > 12
    for family, name in calls:
        assert callable(getattr(families[family], name)), f"{family}.{name}"
    told = {name for family, name in calls}
    for kind in families.values():
        assert {name for name in vars(kind) if not name.startswith("_")} <= told


def test_every_value_on_the_page_is_there() -> None:
    names = set(re.findall(r"`([A-Z]\w+)", PAGE)) - {"Retry", "None", "True", "PATH"}
    ours = {*eventd.client.__all__, *dir(eventd.errors)}
    assert names - {"Unavailable"} <= ours | {"ONCE"}
