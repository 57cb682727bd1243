"""`routerctl dynamic … --watch`: the present state, and each change, until Ctrl-C."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eventd.dynamic.part import form_part
from eventd.plugins.contract.contract import Result
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.store.parts.parts import delete_part, put_part
from eventd.testing import event
from tests.integration.cli.conftest import EDGE, Control
from tests.integration.cli.federation.test_watching import Watch
from tests.unit.dynamic.samples import HOUR, route


@pytest.fixture
def database(control: Control, tmp_path: Path) -> Iterator[Database]:
    control("apply", "-f", control.file(EDGE))
    with closing(Database(f"sqlite:///{tmp_path / 'eventd-data' / 'eventd.db'}")) as opened:
        yield opened


def give(database: Database, name: str, **spec: Any) -> str:
    now = SystemClock().now()
    result = Result(observed_at=now, ttl=HOUR, resources=[route(name, **spec)])
    part = form_part(
        owner="EventSubscription/s", events=[event(name)], result=result, plugin="p", clamp=False, grace=0, now=now
    )
    database.write_now(put_part, part, now)
    return part.source


def test_list_shows_what_is_new_and_what_is_gone(database: Database, tmp_path: Path) -> None:
    first = give(database, "r1")
    with closing(Watch(tmp_path, "dynamic", "list", "--watch", "-o", "json")) as watch:
        assert json.loads(watch.line())["source"] == first
        second = give(database, "r2")
        assert json.loads(watch.line())["source"] == second
        database.write_now(delete_part, first)
        give(database, "r2", other=1)
        again = json.loads(watch.line())
        assert (again["source"], again["generation"]) == (second, 2)
        code, err = watch.interrupt()
    assert (code, err) == (0, f"deleted: {first}\n")


def test_render_prints_the_whole_again_when_it_changes(database: Database, tmp_path: Path) -> None:
    with closing(Watch(tmp_path, "dynamic", "render", "--watch", "-o", "json")) as watch:
        assert [one["kind"] for one in json.loads(watch.line())["spec"]["resources"]] == ["EventGroup", "EventPeer"]
        give(database, "r1")
        assert json.loads(watch.line())["spec"]["resources"][-1]["metadata"]["name"] == "r1"
        assert watch.interrupt() == (0, "")


def test_diff_prints_itself_again_when_it_changes(database: Database, tmp_path: Path) -> None:
    with closing(Watch(tmp_path, "dynamic", "diff", "--watch")) as watch:
        assert watch.line() == "no difference: the parts change no declared resource"
        source = give(database, "r1")
        assert [watch.line(), watch.line()] == [
            "",
            f"+ net.routerd.net/v1alpha1/IPv4Route/r1  source={source}  generation=1",
        ]
        assert watch.interrupt() == (0, "")
