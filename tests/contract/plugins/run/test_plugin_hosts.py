"""Plugins as entry points: the signatures a function may have, and the host processes that are kept for it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eventd.plugins.contract.answer import read_status
from eventd.plugins.contract.contract import PluginFailed, Result
from eventd.plugins.run.entry_points import IDLE_SECONDS, LIFE_SECONDS, START_SECONDS
from eventd.plugins.run.host import Failed, Function, answer, load
from eventd.plugins.run.plugins import Plugins
from eventd.resources.plugin_configuration import PluginConfig
from eventd.runtime.clock import SystemClock
from eventd.testing import NOW, ManualClock, until
from tests.support.child_processes import children, descriptors, is_running, programs
from tests.support.plugins import SECOND, manual_request, plugin_config, write_package
from tests.support.source import ROOT

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
WHO = "import os, sys\ndef plugin(events):\n    print(os.getpid(), file=sys.stderr)\n"
ONE = """
from eventd.plugins import *
import asyncio
from datetime import timedelta
R = lambda name: Resource('a/v1', 'K', name, {'x': 1})
"""


@pytest.fixture
async def plugins() -> AsyncIterator[Plugins]:
    before = descriptors()
    running = Plugins(SystemClock(), environment=PATH)
    yield running
    await running.close()
    assert descriptors() == before
    assert not children()


def entry_point(folder: Path, body: str, name: str = "sample", **fields: object) -> PluginConfig:
    return plugin_config(**{"name": name, "entry_point": name, "env": write_package(folder, body, name), **fields})


async def fail(plugins: Plugins, config: PluginConfig, count: int = 0) -> PluginFailed:
    with pytest.raises(PluginFailed) as caught:
        await plugins.run(config, manual_request(count))
    return caught.value


# --- forms, in this process ---------------------------------------------------------------------------------------

FORMS = {
    "returns a list": "def plugin(events):\n    return [R(e.id) for e in events]",
    "yields": "def plugin(events):\n    for e in events:\n        yield R(e.id)",
    "is called for each": "def plugin(event):\n    return R(event.id)",
    "yields for each": "def plugin(event, context):\n    yield R(event.id)",
    "is asynchronous": "async def plugin(events):\n    await asyncio.sleep(0)\n    return [R(e.id) for e in events]",
    "is asynchronous for each": "async def plugin(event):\n    return R(event.id)",
    "yields asynchronously": "async def plugin(events):\n    for e in events:\n        yield R(e.id)",
    "is an object": "class P:\n    def __call__(self, events):\n        return [R(e.id) for e in events]\nplugin = P()",
    "has an option of its own": "def plugin(events, cache={}):\n    return [R(e.id) for e in events]",
    "nests": "def plugin(events):\n    return [[R(e.id)] for e in events], None, ()",
    "gives a part": "def plugin(events):\n    return Part(resources=[R(e.id) for e in events])",
    "gives mappings": (
        "def plugin(events):\n    for e in events:\n"
        "        yield {'apiVersion': 'a/v1', 'kind': 'K', 'metadata': {'name': e.id}, 'spec': {'x': 1}}"
    ),
    "gives a status": "def plugin(events):\n    return {'resources': [R(e.id) for e in events]}",
    "gives a result": (
        "def plugin(events):\n    return {'apiVersion': 'plugin.routerd.net/v1alpha1', 'kind': 'PluginResult',"
        " 'status': {'resources': [R(e.id) for e in events]}}"
    ),
    "gives a whole part": (
        "def plugin(events):\n    return {'kind': 'DynamicConfigPart', 'spec': {'resources': [R(e.id) for e in events],"
        " 'observedAt': '2026-05-30T12:00:00Z', 'expiresAt': '2026-05-30T12:10:00Z'}}"
    ),
}


def call(body: str, count: int = 1, **fields: Any) -> dict[str, Any]:
    """Have a function answer one request, as a host does; return the answer."""
    names: dict[str, Any] = {}
    exec(ONE + body, names)
    function = Function(names["plugin"])
    try:
        found: dict[str, Any] = json.loads(answer(function, manual_request(count, **fields).encode()))
    finally:
        if function._run is not None:
            function._run.__self__.close()  # type: ignore[attr-defined]
    return found


def propose(body: str, count: int = 1) -> Result:
    """Have a function answer one request; return the result as the node reads it."""
    return read_status(json.dumps(call(body, count)["status"]).encode(), now=NOW, ttl=600 * SECOND)


@pytest.mark.parametrize("form", FORMS)
def test_a_function_may_have_this_form(form: str) -> None:
    result = propose(FORMS[form], 2)
    assert [found["metadata"]["name"] for found in result.resources] == ["e1", "e2"]
    assert [found["spec"] for found in result.resources] == [{"x": 1}] * 2
    assert result.ttl == 600 * SECOND


@pytest.mark.parametrize(
    "parameters",
    [
        *("events, context", "events, context=None", "events, anything", "events, /, context"),
        *("events, *, context", "events, cache=None, context=None", "events, *, context=None, cache=None"),
    ],
)
def test_the_context_is_handed_over_whatever_stands_before_it(
    parameters: str, capsys: pytest.CaptureFixture[str]
) -> None:
    body = f"""
def plugin({parameters}):
    print(locals().get("context", locals().get("anything")), locals().get("cache"), len(events))
"""
    assert call(body, 2, context=[{"kind": "K"}]) == {"status": {}}
    assert capsys.readouterr().out == "[{'kind': 'K'}] None 2\n"


def returning(expression: str) -> str:
    return f"from datetime import *\ndef plugin(events):\n    return {expression}\n"


def test_a_mask_a_plan_and_an_event_are_written_as_results_hold_them() -> None:
    result = propose(
        returning(
            "Mask('a/v1', 'K', 'n', 'because'), "
            "Plan(name='p', provider='oci', action='ensure-forwarding-enabled', risk_level='low'), "
            "Emit(type='seen', message='hello', attributes={'a': 'b'}, ttl=timedelta(minutes=5), subject='s'), "
            "events[0]"
        )
    )
    assert result.directives == [
        {"op": "mask", "target": {"apiVersion": "a/v1", "kind": "K", "name": "n"}, "reason": "because"}
    ]
    assert [plan["action"] for plan in result.action_plans] == ["ensure-forwarding-enabled"]
    assert result.events == [
        {"type": "seen", "message": "hello", "attributes": {"a": "b"}, "subject": "s", "ttl": "300000000us"},
        {"type": "t", "subject": "10.0.0.1/32", "payload": {}},
    ]


def test_a_part_says_how_long_it_holds_and_since_when() -> None:
    result = propose(returning("Part(ttl=timedelta(hours=1), observed_at=events[0].observed_at)"))
    assert result.ttl == 3600 * SECOND
    assert result.observed_at == manual_request().now


def test_two_times_to_live_in_one_run_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    failed = call(returning("Part(ttl='1m'), Part(ttl='2m')"))["failed"]
    assert failed["reason"] == "raised"
    assert "two different ttl" in capsys.readouterr().err


def test_resources_for_one_event_name_its_subject() -> None:
    def annotations(body: str) -> dict[str, str] | None:
        [found] = propose(body).resources
        noted: dict[str, str] | None = found["metadata"].get("annotations")
        return noted

    assert annotations("def plugin(event): return R('r')") == {"routerd.net/for-subject": "10.0.0.1/32"}
    own = "Resource('a/v1', 'K', 'r', {}, {'routerd.net/for-subject': 'mine'})"
    assert annotations(f"def plugin(event): return {own}") == {"routerd.net/for-subject": "mine"}
    assert annotations("def plugin(events): return R('r')") is None


def test_a_cancelled_function_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    failed = call("def plugin(events): raise asyncio.CancelledError")["failed"]
    assert failed == {"reason": "raised", "message": "the plugin raised CancelledError"}
    assert "CancelledError" in capsys.readouterr().err


# --- functions that cannot be used --------------------------------------------------------------------------------


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Install a package with an entry point where this process finds it; return its folder."""

    def install(body: str, *, folder: str = "", **fields: str) -> Path:
        (tmp_path / folder).mkdir(exist_ok=True)
        site = write_package(tmp_path / folder, body, **fields)[0][1]
        monkeypatch.syspath_prepend(site)
        return Path(site)

    yield install
    sys.modules.pop("module_of_sample", None)


WRONG_PARAMETERS = "must take one parameter, the events, or two, the events and the context"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("def plugin(", "SyntaxError"),
        ("x = 1", "AttributeError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("plugin = 5", "is int, but must be a function"),
        ("def plugin(): pass", WRONG_PARAMETERS),
        ("def plugin(a, b, c): pass", WRONG_PARAMETERS),
        ("def plugin(*events): pass", WRONG_PARAMETERS),
        ("def plugin(events, *, key): pass", WRONG_PARAMETERS),
    ],
)
def test_a_function_that_cannot_be_used_is_not_loaded(install: Callable[..., Path], body: str, told: str) -> None:
    install(body)
    with pytest.raises(Failed) as caught:
        load("sample")
    assert caught.value.reason == "cannot_import"
    assert told in caught.value.message


def test_a_misspelt_name_is_told_beside_those_there_are(install: Callable[..., Path]) -> None:
    install("def plugin(events): pass")
    with pytest.raises(
        Failed, match=r"has the entry point samples in the group eventd\.plugins, only sample$"
    ) as caught:
        load("samples")
    assert caught.value.reason == "no_entry_point"


def test_a_name_that_two_packages_have(install: Callable[..., Path]) -> None:
    install("def plugin(events): pass")
    two = install("def plugin(events): pass", folder="other", function="another")
    copy = two / "copy-1.0.dist-info"
    os.rename(two / "sample-1.0.dist-info", copy)
    (copy / "METADATA").write_text("Metadata-Version: 2.1\nName: copy\nVersion: 1.0\n")
    with pytest.raises(Failed, match="several installed packages have the entry point sample"):
        load("sample")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise ValueError('the password')", "module_of_sample:plugin cannot be imported: ValueError"),
        ("import os\nos._exit(7)", "exited with status 7"),
    ],
)
async def test_a_function_that_cannot_be_used_is_no_events_fault(
    plugins: Plugins, tmp_path: Path, body: str, told: str
) -> None:
    failed = await fail(plugins, entry_point(tmp_path, body))
    assert failed.about_plugin
    assert told in failed.message
    assert "password" not in str(failed)


async def test_an_import_that_does_not_end_is_ended(tmp_path: Path) -> None:
    clock = ManualClock()
    plugins = Plugins(clock, environment=PATH)
    run = asyncio.ensure_future(plugins.run(entry_point(tmp_path, "while True: pass"), manual_request()))
    await until(lambda: START_SECONDS in clock.waits, "the import to have begun")
    clock.advance(START_SECONDS)
    with pytest.raises(PluginFailed) as caught:
        await run
    assert (caught.value.reason, caught.value.about_plugin) == ("cannot_import", True)
    assert caught.value.message == "the plugin could not be imported within 30 s"
    await plugins.close()
    assert not children()


def test_a_host_starts_light() -> None:
    """What every host imports before the plugin: nothing of the node, so that it starts in a moment."""
    heavy = ("asyncio", "pydantic", "sqlalchemy", "aiohttp", "yaml", "eventd.plugins.run.plugins", "eventd.resources")
    probe = f"import sys, eventd.plugins.run.host; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_name_that_no_package_has(plugins: Plugins) -> None:
    failed = await fail(plugins, plugin_config(entry_point="nobody"))
    assert (failed.reason, failed.about_plugin) == ("no_entry_point", True)
    assert failed.message == "no installed package has the entry point nobody in the group eventd.plugins"


async def test_a_function_of_a_process_may_be_asynchronous(plugins: Plugins, tmp_path: Path) -> None:
    outcome = await plugins.run(entry_point(tmp_path, ONE + FORMS["yields asynchronously"]), manual_request(2))
    assert [found["metadata"]["name"] for found in outcome.result.resources] == ["e1", "e2"]
    assert outcome.result.ttl == 600 * SECOND


async def test_a_function_that_raises_leaves_its_traceback_and_is_loaded_anew(plugins: Plugins, tmp_path: Path) -> None:
    body = """
def plugin(events):
    if events:
        print("looking")
        raise KeyError("unmended")
"""
    config = entry_point(tmp_path, body)
    await plugins.run(config, manual_request())
    failed = await fail(plugins, config, 1)
    assert (failed.reason, failed.message) == ("raised", "the plugin raised KeyError")
    assert failed.hint == "routerctl plugin logs shows what it wrote"
    assert failed.stderr.startswith("looking\nTraceback")
    assert "module_of_sample.py" in failed.stderr
    assert "eventd/plugins/run/host.py" not in failed.stderr
    assert failed.stderr.endswith("KeyError: 'unmended'\n")
    module = tmp_path / "site-sample" / "module_of_sample.py"
    module.write_text("def plugin(events):\n    print('mended')\n")
    assert (await plugins.run(config, manual_request(1))).stderr == "mended\n"


async def test_what_is_printed_does_not_get_into_the_answer(plugins: Plugins, tmp_path: Path) -> None:
    """Nor does a program that the plugin starts see the paths or the files of the node."""
    body = """
import os, subprocess
def plugin(events):
    print('hello')
    os.write(1, b'raw\\n')
    subprocess.run('echo child; env; ls /proc/self/fd', shell=True)
"""
    config = entry_point(tmp_path, body)
    lines = (await plugins.run(config, manual_request())).stderr.splitlines()
    assert {"hello", "raw", "child", f"PYTHONPATH={config.env[0][1]}"} <= set(lines)
    assert [line for line in lines if line.isdigit()] == ["0", "1", "2", "3"], "the three, and that of the listing"


async def test_rubbish_in_the_pipe_of_the_answers_ends_the_process_and_the_next_run_is_well(
    plugins: Plugins, tmp_path: Path
) -> None:
    body = """
import os
def plugin(events):
    if events:
        for fd in range(3, 20):
            try:
                os.write(fd, b'\\0\\0\\0\\5hello')
            except OSError:
                pass
"""
    config = entry_point(tmp_path, body)
    failed = await fail(plugins, config, 1)
    assert failed.reason == "crashed"
    assert "wrote into the pipe of its answers" in failed.message
    assert (await plugins.run(config, manual_request())).exit_code is None


@pytest.mark.parametrize("where", ["at import", "in a run"])
async def test_a_copy_of_the_process_answers_nobody(plugins: Plugins, tmp_path: Path, where: str) -> None:
    """Whatever the copy does: it returns for one event, raises for two, and leaves for three."""
    body = f"""
import os, sys
from eventd.plugins import Resource
if {where == "at import"}:
    os.fork()
def plugin(events):
    if {where == "in a run"}:
        if copy := os.fork():
            os.waitpid(copy, 0)
        elif len(events) == 2:
            raise ValueError
        elif len(events) == 3:
            sys.exit(3)
    return [Resource('a/v1', 'K', event.id) for event in events]
"""
    config = entry_point(tmp_path, body, concurrency=1)
    for count in (3, 1, 2):
        outcome = await plugins.run(config, manual_request(count))
        names = [found["metadata"]["name"] for found in outcome.result.resources]
        assert names == [f"e{number}" for number in range(1, count + 1)]


async def test_a_function_that_leaves_has_failed_at_once_whatever_it_has_started(
    plugins: Plugins, tmp_path: Path
) -> None:
    body = """
import sys, threading
def plugin(events):
    threading.Thread(target=threading.Event().wait).start()
    sys.exit(0)
"""
    failed = await fail(plugins, entry_point(tmp_path, body), 1)
    assert (failed.reason, failed.message) == ("raised", "the plugin raised SystemExit")
    assert "SystemExit" in failed.stderr


# --- processes ----------------------------------------------------------------------------------------------------


async def test_a_process_is_used_again_until_its_plugin_changes_or_is_forgotten(
    plugins: Plugins, tmp_path: Path
) -> None:
    """The interrupt of a terminal does not reach it."""
    config = entry_point(tmp_path, WHO)
    (first,) = {int((await plugins.run(config, manual_request())).stderr) for _ in range(5)}
    assert os.getpgid(first) != os.getpgid(0)
    assert os.getsid(first) == first
    second = int((await plugins.run(replace(config, timeout=5 * SECOND), manual_request())).stderr)
    assert first != second
    await until(lambda: not is_running(first), "the old process to end")
    await plugins.forget("sample")
    await plugins.forget("nobody")
    await until(lambda: not is_running(second), "the process to end")


async def test_a_run_under_way_ends_well_when_its_plugin_is_declared_anew(plugins: Plugins, tmp_path: Path) -> None:
    go = tmp_path / "go"
    body = f"""
import os, time
def plugin(events):
    print(os.getpid(), flush=True)
    while not os.path.exists({str(go)!r}):
        time.sleep(0.01)
"""
    config = entry_point(tmp_path, body)
    run = asyncio.ensure_future(plugins.run(config, manual_request()))
    await until(lambda: len(programs()) == 1, "the process to be there")
    await plugins.forget("sample")
    go.touch()
    pid = int((await run).stderr)
    await until(lambda: not is_running(pid), "the process to end after its run")


async def test_a_process_without_work_ends_after_a_minute_and_an_old_one_is_replaced(tmp_path: Path) -> None:
    clock = ManualClock()
    plugins = Plugins(clock, environment=PATH)
    config = entry_point(tmp_path, WHO)
    pid = int((await plugins.run(config, manual_request())).stderr)
    clock.advance(IDLE_SECONDS - 1)
    assert int((await plugins.run(config, manual_request())).stderr) == pid
    clock.advance(IDLE_SECONDS - 1)
    assert is_running(pid)
    clock.advance(1)
    await until(lambda: not is_running(pid), "the idle process to end")
    young = int((await plugins.run(config, manual_request())).stderr)
    for _ in range(round(LIFE_SECONDS / 50) + 2):
        clock.advance(50)
        last = int((await plugins.run(config, manual_request())).stderr)
    assert last != young
    await plugins.close()
    assert not children()


async def test_a_process_that_ends_while_it_is_idle_is_reaped_and_replaced(plugins: Plugins, tmp_path: Path) -> None:
    config = entry_point(tmp_path, WHO)
    pid = int((await plugins.run(config, manual_request())).stderr)
    hosts = plugins._current["sample"].hosts
    os.kill(pid, signal.SIGKILL)
    await until(lambda: hosts is not None and not hosts.any_left, "the end of the process to be noticed")
    assert not programs()
    assert int((await plugins.run(config, manual_request())).stderr) != pid
