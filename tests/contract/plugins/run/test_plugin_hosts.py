"""Plugins as entry points: the signatures a function may have, and the host processes that are kept for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from eventd.plugins.contract.contract import PluginFailed, Result
from eventd.plugins.run.entry_points import IDLE_SECONDS, LIFE_SECONDS, START_SECONDS
from eventd.plugins.run.plugins import Plugins
from eventd.resources.effective import PluginConfig
from eventd.runtime.clock import SystemClock
from eventd.testing import ManualClock, until
from tests.support.child_processes import children, descriptors, is_running, programs
from tests.support.plugins import SECOND, manual_request, plugin_config, write_package
from tests.support.source import ROOT
from tests.support.waiting import wait_for

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


# --- forms --------------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("form", FORMS)
async def test_a_function_may_have_this_form(plugins: Plugins, tmp_path: Path, form: str) -> None:
    outcome = await plugins.run(entry_point(tmp_path, ONE + FORMS[form]), manual_request(2))
    assert [found["metadata"]["name"] for found in outcome.result.resources] == ["e1", "e2"]
    assert [found["spec"] for found in outcome.result.resources] == [{"x": 1}] * 2
    assert outcome.result.ttl == 600 * SECOND


@pytest.mark.parametrize(
    "parameters",
    [
        *("events, context", "events, context=None", "events, anything", "events, /, context"),
        *("events, *, context", "events, cache=None, context=None", "events, *, context=None, cache=None"),
    ],
)
async def test_the_context_is_handed_over_whatever_stands_before_it(
    plugins: Plugins, tmp_path: Path, parameters: str
) -> None:
    body = f"""
def plugin({parameters}):
    print(locals().get("context", locals().get("anything")), locals().get("cache"), len(events))
"""
    outcome = await plugins.run(entry_point(tmp_path, body), manual_request(2, context=[{"kind": "K"}]))
    assert outcome.stderr == "[{'kind': 'K'}] None 2\n"


async def propose(plugins: Plugins, folder: Path, expression: str) -> Result:
    config = entry_point(folder, f"{ONE}from datetime import *\ndef plugin(events):\n    return {expression}\n")
    return (await plugins.run(config, manual_request(1))).result


async def test_a_mask_a_plan_and_an_event_are_written_as_results_hold_them(plugins: Plugins, tmp_path: Path) -> None:
    result = await propose(
        plugins,
        tmp_path,
        "Mask('a/v1', 'K', 'n', 'because'), "
        "Plan(name='p', provider='oci', action='ensure-forwarding-enabled', risk_level='low'), "
        "Emit(type='seen', message='hello', attributes={'a': 'b'}, ttl=timedelta(minutes=5), subject='s'), events[0]",
    )
    assert result.directives == [
        {"op": "mask", "target": {"apiVersion": "a/v1", "kind": "K", "name": "n"}, "reason": "because"}
    ]
    assert [plan["action"] for plan in result.action_plans] == ["ensure-forwarding-enabled"]
    assert result.events == [
        {"type": "seen", "message": "hello", "attributes": {"a": "b"}, "subject": "s", "ttl": "300000000us"},
        {"type": "t", "subject": "10.0.0.1/32", "payload": {}},
    ]


async def test_a_part_says_how_long_it_holds_and_since_when(plugins: Plugins, tmp_path: Path) -> None:
    result = await propose(plugins, tmp_path, "Part(ttl=timedelta(hours=1), observed_at=events[0].observed_at)")
    assert result.ttl == 3600 * SECOND
    assert result.observed_at == manual_request().now


async def test_two_times_to_live_in_one_run_are_refused(plugins: Plugins, tmp_path: Path) -> None:
    config = entry_point(tmp_path, f"{ONE}def plugin(events):\n    return Part(ttl='1m'), Part(ttl='2m')")
    failed = await fail(plugins, config)
    assert failed.reason == "raised"
    assert "two different ttl" in failed.stderr


async def test_resources_for_one_event_name_its_subject(plugins: Plugins, tmp_path: Path) -> None:
    each = await plugins.run(entry_point(tmp_path, f"{ONE}def plugin(event): return R('r')"), manual_request(1))
    [found] = each.result.resources
    assert found["metadata"]["annotations"] == {"routerd.net/for-subject": "10.0.0.1/32"}
    body = f"{ONE}def plugin(event): return Resource('a/v1', 'K', 'r', {{}}, {{'routerd.net/for-subject': 'mine'}})"
    own = await plugins.run(entry_point(tmp_path, body, "own"), manual_request(1))
    assert own.result.resources[0]["metadata"]["annotations"] == {"routerd.net/for-subject": "mine"}
    batch = await plugins.run(
        entry_point(tmp_path, f"{ONE}def plugin(events): return R('r')", "batch"), manual_request(1)
    )
    assert "annotations" not in batch.result.resources[0]["metadata"]


# --- functions that cannot be used --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("def plugin(", "SyntaxError"),
        ("x = 1", "AttributeError"),
        ("raise ValueError('the password')", "module_of_sample:plugin cannot be imported: ValueError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("plugin = 5", "is int, but must be a function"),
        ("def plugin(): pass", "must take one parameter, the events, or two, the events and the context"),
        ("def plugin(a, b, c): pass", "must take one parameter, the events, or two, the events and the context"),
        ("def plugin(*events): pass", "must take one parameter, the events, or two, the events and the context"),
        ("def plugin(events, *, key): pass", "must take one parameter, the events, or two, the events and the context"),
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


async def test_a_misspelt_name_is_told_beside_those_there_are(plugins: Plugins, tmp_path: Path) -> None:
    env = write_package(tmp_path, "def plugin(events): pass")
    failed = await fail(plugins, plugin_config(entry_point="samples", env=env))
    assert failed.message.endswith("has the entry point samples in the group eventd.plugins, only sample")


async def test_what_was_printed_stands_before_the_traceback(plugins: Plugins, tmp_path: Path) -> None:
    body = """
    def plugin(events):
        print("looking")
        raise KeyError("mac")
    """
    failed = await fail(plugins, plugin_config(entry_point="sample", env=write_package(tmp_path, body)))
    assert failed.hint == "routerctl plugin logs shows what it wrote"
    assert failed.stderr.startswith("looking\nTraceback")
    assert failed.stderr.endswith("KeyError: 'mac'\n")


async def test_a_name_that_two_packages_have(plugins: Plugins, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = write_package(tmp_path, "def plugin(events): pass")[0][1]
    two = write_package(tmp_path / "other", "def plugin(events): pass", function="another")[0][1]
    os.rename(f"{two}/sample-1.0.dist-info", f"{two}/copy-1.0.dist-info")
    copy = tmp_path / "other" / "site-sample" / "copy-1.0.dist-info"
    (copy / "METADATA").write_text("Metadata-Version: 2.1\nName: copy\nVersion: 1.0\n")
    env = (("PYTHONPATH", f"{one}:{two}"),)
    failed = await fail(plugins, plugin_config(entry_point="sample", env=env))
    assert "several installed packages have the entry point sample" in failed.message


async def test_a_function_that_raises_leaves_its_traceback_and_is_loaded_anew(plugins: Plugins, tmp_path: Path) -> None:
    body = """
def plugin(events):
    if events:
        raise KeyError("unmended")
"""
    config = entry_point(tmp_path, body)
    await plugins.run(config, manual_request())
    failed = await fail(plugins, config, 1)
    assert (failed.reason, failed.message) == ("raised", "the plugin raised KeyError")
    assert "module_of_sample.py" in failed.stderr
    assert "eventd/plugins/run/host.py" not in failed.stderr
    assert "KeyError: 'unmended'" in failed.stderr
    module = tmp_path / "site-sample" / "module_of_sample.py"
    module.write_text("def plugin(events):\n    print('mended')\n")
    assert (await plugins.run(config, manual_request(1))).stderr == "mended\n"


async def test_a_function_that_never_stops_yielding_is_stopped(plugins: Plugins, tmp_path: Path) -> None:
    body = f"{ONE}def plugin(events):\n    while True:\n        yield Resource('a/v1', 'K', 'n', {{'t': 'x' * 10_000}})"
    assert (await fail(plugins, entry_point(tmp_path, body))).reason == "stdout_too_large"


async def test_what_is_none_of_the_allowed_things_is_named(plugins: Plugins, tmp_path: Path) -> None:
    failed = await fail(plugins, entry_point(tmp_path, "def plugin(events): return 5"))
    assert "returned int; return Resource, Mask, Plan, Emit, Part" in failed.stderr


async def test_what_is_printed_does_not_get_into_the_answer(plugins: Plugins, tmp_path: Path) -> None:
    body = """
import os, subprocess
def plugin(events):
    print('hello')
    os.write(1, b'raw ')
    subprocess.run(['echo', 'child'])
"""
    outcome = await plugins.run(entry_point(tmp_path, body), manual_request())
    assert sorted(outcome.stderr.split()) == ["child", "hello", "raw"]


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


@pytest.mark.parametrize("where", ["at import", "in a run", "and the copy raises", "and the copy leaves"])
async def test_a_copy_of_the_process_answers_nobody(plugins: Plugins, tmp_path: Path, where: str) -> None:
    body = f"""
import os, sys, time
from eventd.plugins import Resource
where = {where!r}
if where == "at import":
    os.fork()
def plugin(event):
    child = where != "at import" and os.fork()
    if child:
        os.waitpid(child, 0)
    elif where == "and the copy raises":
        raise ValueError
    elif where == "and the copy leaves":
        sys.exit(3)
    return Resource('a/v1', 'K', event.id)
"""
    config = entry_point(tmp_path, body, concurrency=1)
    for count in (3, 1, 2):
        outcome = await plugins.run(config, manual_request(count))
        names = [found["metadata"]["name"] for found in outcome.result.resources]
        assert names == [f"e{number}" for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("leaves", "kind"), [("sys.exit(0)", "SystemExit"), ("raise asyncio.CancelledError", "CancelledError")]
)
async def test_a_function_that_leaves_has_failed_at_once_whatever_it_has_started(
    plugins: Plugins, tmp_path: Path, leaves: str, kind: str
) -> None:
    body = f"""
import asyncio, sys, threading
def plugin(events):
    threading.Thread(target=threading.Event().wait).start()
    {leaves}
"""
    failed = await fail(plugins, entry_point(tmp_path, body), 1)
    assert (failed.reason, failed.message) == ("raised", f"the plugin raised {kind}")
    assert kind in failed.stderr


async def test_a_program_it_starts_does_not_see_the_paths_of_the_node(plugins: Plugins, tmp_path: Path) -> None:
    body = "import subprocess\ndef plugin(events): subprocess.run('env; ls /proc/self/fd', shell=True)"
    config = entry_point(tmp_path, body)
    outcome = await plugins.run(config, manual_request())
    assert f"PYTHONPATH={config.env[0][1]}\n" in outcome.stderr
    assert "\n0\n1\n2\n3\n" in outcome.stderr, "the three, and that of the listing"
    assert "\n4\n" not in outcome.stderr


# --- processes ----------------------------------------------------------------------------------------------------


async def test_a_process_is_used_again(plugins: Plugins, tmp_path: Path) -> None:
    config = entry_point(tmp_path, WHO)
    pids = {(await plugins.run(config, manual_request())).stderr for _ in range(5)}
    assert len(pids) == 1


async def test_the_interrupt_of_a_terminal_does_not_reach_it(plugins: Plugins, tmp_path: Path) -> None:
    config = entry_point(tmp_path, WHO)
    pid = int((await plugins.run(config, manual_request())).stderr)
    assert os.getpgid(pid) != os.getpgid(0)
    assert os.getsid(pid) == pid


async def test_a_declaration_that_changes_gets_new_processes(plugins: Plugins, tmp_path: Path) -> None:
    config = entry_point(tmp_path, WHO)
    first = int((await plugins.run(config, manual_request())).stderr)
    second = int((await plugins.run(replace(config, timeout=5 * SECOND), manual_request())).stderr)
    assert first != second
    await until(lambda: not is_running(first), "the old process to end")


async def test_what_is_forgotten_ends(plugins: Plugins, tmp_path: Path) -> None:
    config = entry_point(tmp_path, WHO)
    pid = int((await plugins.run(config, manual_request())).stderr)
    await plugins.forget("sample")
    await plugins.forget("nobody")
    await until(lambda: not is_running(pid), "the process to end")


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


NODE = """
import asyncio, sys
from eventd.runtime.clock import SystemClock
from eventd.plugins.run.plugins import Plugins
from tests.support.plugins import manual_request, plugin_config
async def main():
    config = plugin_config(entry_point="sample", timeout=3_600_000_000, env=(("PYTHONPATH", sys.argv[1]),))
    await Plugins(SystemClock(), environment={"PATH": "/usr/bin:/bin"}).run(config, manual_request())
asyncio.run(main())
"""


@pytest.mark.parametrize("endless", ["while True: pass", "re.match('(a+)+$', 'a' * 60 + 'b')"])
def test_nothing_survives_a_node_that_is_killed(tmp_path: Path, endless: str) -> None:
    pids = tmp_path / "pids"
    body = f"""
import os, re, subprocess
def plugin(events):
    child = subprocess.Popen(['sleep', '3600'])
    with open({str(pids)!r}, 'w') as file:
        file.write(f'{{os.getpid()}} {{child.pid}}\\n')
    {endless}
"""
    site = write_package(tmp_path, body)[0][1]
    node = subprocess.Popen([sys.executable, "-c", NODE, site], cwd=ROOT)
    try:
        wait_for(lambda: pids.exists() and pids.read_text().endswith("\n"), "the plugin to run")
        left = [int(pid) for pid in pids.read_text().split()]
        assert all(map(is_running, left))
    finally:
        node.kill()
        node.wait()
    wait_for(lambda: not any(map(is_running, left)), "the plugin and what it started to end")
