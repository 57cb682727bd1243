"""One suite for plugins of every kind: whatever they do, the run ends with a result or a clear reason."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventd.plugins.contract.contract import Outcome, PluginFailed
from eventd.plugins.run.plugins import Plugins
from eventd.resources.plugin_configuration import PluginConfig
from eventd.runtime.clock import SystemClock
from eventd.testing import ManualClock, until
from tests.support.child_processes import children, descriptors, is_running
from tests.support.plugins import SECOND, manual_request, plugin_config, write_package, write_program

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

# What a plugin does, written for each kind of plugin: the body of a program, and of a function `plugin(events)`.
VALUES = """
RES = {"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n"}, "spec": {}}
TARGET = {"apiVersion": "a/v1", "kind": "K", "name": "n"}
PLAN = {"name": "a", "provider": "oci", "action": "ensure-forwarding-enabled"}
def without(document, key):
    return {name: value for name, value in document.items() if name != key}
"""
AS_PROGRAM = """
import json, os, signal, subprocess, sys, time
def answer(status):
    head = {"apiVersion": "plugin.routerd.net/v1alpha1", "kind": "PluginResult"}
    print(json.dumps({**head, "status": {"ttl": "5m", **status}}))
def read():
    return json.load(sys.stdin)["spec"]
spec = read()
events, context = spec.get("events", []), spec["context"].get("resources", [])
def done(status):
    answer(status)
    sys.exit(0)
"""
AS_FUNCTION = """
import json, os, signal, subprocess, sys, time
class Done(Exception):
    pass
def done(status):
    raise Done({"ttl": "5m", **status})
def plugin(events, context):
    try:
        body([json.loads(json.dumps({"id": event.id, "subject": event.subject})) for event in events], context)
    except Done as told:
        return told.args[0]
"""
CLAIMS = """
named = lambda e: {**RES, "metadata": {"name": e["id"]}, "spec": {"s": e["subject"]}}
done({"resources": [named(e) for e in events]})
"""


@dataclass(frozen=True)
class Bench:
    """Makes plugins of one kind and runs them."""

    kind: str
    folder: Path
    plugins: Plugins

    def make(self, body: str, **fields: Any) -> PluginConfig:
        """A plugin that does this with `events` and `context`."""
        name = fields.pop("name", "sample")
        if self.kind == "program":
            path = write_program(self.folder, AS_PROGRAM + VALUES + body, name)
            return plugin_config(**({"name": name, "executable": path} | fields))
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        text = f"{AS_FUNCTION}{VALUES}\ndef body(events, context):\n    pass\n{lines}"
        env = write_package(self.folder, text, name)
        return plugin_config(**{"name": name, "entry_point": name, **fields, "env": env + fields.get("env", ())})

    async def run(self, body: str, count: int = 0, **fields: Any) -> Outcome:
        return await self.plugins.run(self.make(body, **fields), manual_request(count))

    async def fail(self, body: str, count: int = 0, **fields: Any) -> PluginFailed:
        with pytest.raises(PluginFailed) as caught:
            await self.run(body, count, **fields)
        return caught.value


@pytest.fixture
async def plugins() -> AsyncIterator[Plugins]:
    """The plugins of a node. What it leaves behind, a descriptor or a process, fails the test."""
    before = descriptors()
    running = Plugins(SystemClock(), environment=PATH)
    yield running
    await running.close()
    left = descriptors() - before
    assert not left, f"descriptors are left open: {left}"
    assert not children(), f"processes are left: {children()}"


@pytest.fixture(params=["program", "entry point"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, plugins: Plugins) -> Bench:
    return Bench(request.param, tmp_path, plugins)


async def test_a_thousand_events_with_any_text_become_resources(bench: Bench) -> None:
    request = manual_request(1024)
    odd = [msgspec.structs.replace(event, subject=f'{event.id} żółw 雪 🐌 \u2028 " \\ \t') for event in request.events]
    outcome = await bench.plugins.run(bench.make(CLAIMS), replace(request, events=odd))
    found = [(one["metadata"]["name"], one["spec"]) for one in outcome.result.resources]
    assert found == [(event.id, {"s": event.subject}) for event in odd]
    assert outcome.result.ttl == 300 * SECOND
    assert outcome.exit_code == (0 if bench.kind == "program" else None)
    assert len(outcome.stdout_digest) == 64
    assert outcome.started_at <= outcome.completed_at


SURROUNDINGS = """
found = {
    "context": context,
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "leads its session": os.getsid(0) == os.getpid(),
    "inherits": os.path.exists("/proc/self/fd/" + os.environ["KEPT"]),
}
print(json.dumps(found), file=sys.stderr)
done({})
"""


async def test_a_plugin_gets_its_context_and_its_variables_and_nothing_else_of_the_node(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs at the root of the file system, in a session of its own, without descriptors of the node."""
    monkeypatch.setenv("EVENTD_API_KEYS", "very-secret")
    resource = {"apiVersion": "n.example/v1", "kind": "Claim", "name": "c", "spec": {"a": 1}}
    kept = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(kept, True)
    try:
        config = bench.make(SURROUNDINGS, env=(("CLAIM_TTL", "30m"), ("KEPT", str(kept))))
        outcome = await bench.plugins.run(config, manual_request(context=[resource]))
    finally:
        os.close(kept)
    found = json.loads(outcome.stderr)
    assert found["context"] == [resource]
    assert (found["folder"], found["leads its session"], found["inherits"]) == ("/", True, False)
    variables = found["environment"]
    assert (variables["CLAIM_TTL"], variables["PATH"]) == ("30m", "/usr/local/bin:/usr/bin:/bin")
    assert "very-secret" not in outcome.stderr
    assert not [name for name in variables if name.startswith("EVENTD_")]
    assert outcome.result.resources == []


# --- runs that fail -----------------------------------------------------------------------------------------------


async def test_an_endless_run_is_ended_with_what_it_started(bench: Bench) -> None:
    """Signals that are ignored do not help."""
    body = """
for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(each, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "3600"])
print(child.pid, file=sys.stderr, flush=True)
time.sleep(3600)
"""
    failed = await bench.fail(body, timeout=SECOND)
    assert (failed.reason, failed.transient, failed.about_plugin) == ("timeout", True, False)
    assert failed.message == "the plugin was killed: it ran longer than 1s"
    pid = int(failed.stderr)
    await until(lambda: not is_running(pid), "the grandchild to be ended")


async def test_a_signal_that_ends_it_is_named(bench: Bench) -> None:
    failed = await bench.fail("os.kill(os.getpid(), signal.SIGSEGV)")
    assert failed.reason == ("killed" if bench.kind == "program" else "crashed")
    assert "was ended by SIGSEGV" in failed.message
    assert failed.transient


async def test_an_exit_code_is_told(bench: Bench) -> None:
    failed = await bench.fail("print('no route to provider', file=sys.stderr, flush=True)\nos._exit(42)")
    assert failed.reason == ("exit_code" if bench.kind == "program" else "crashed")
    assert "exited with status 42" in failed.message
    assert failed.stderr == "no route to provider\n"
    assert "no route" not in str(failed)


async def test_a_flood_on_standard_error_is_stopped(bench: Bench) -> None:
    failed = await bench.fail("while True: os.write(2, b'x' * 4096)")
    assert failed.reason == "stderr_too_large"
    assert failed.message == "the plugin was killed: it wrote more than 64 KiB to its standard error"
    assert len(failed.stderr) <= 8192


async def test_too_large_a_proposal_is_stopped(bench: Bench) -> None:
    failed = await bench.fail("done({'resources': [{**RES, 'spec': {'t': 'x' * 5_000_000}}]})")
    assert failed.reason == "stdout_too_large"
    assert "4" in failed.message


async def test_the_end_of_what_it_wrote_is_kept(bench: Bench) -> None:
    outcome = await bench.run("print('x' * 20_000, 'the end', file=sys.stderr)\ndone({})")
    assert outcome.stderr.startswith("…x")
    assert outcome.stderr.endswith("x the end\n")
    assert len(outcome.stderr) == 8192


async def test_an_answer_is_checked_whatever_the_kind(bench: Bench) -> None:
    """See `test_answers` for what is refused."""
    failed = await bench.fail("done({'resources': [{**RES, 'spec': {'a': 2**70}}]})")
    assert (failed.reason, failed.about_plugin) == ("refused", False)
    assert failed.message == "the plugin's answer contains a whole number outside the signed 64-bit range"


async def test_what_is_not_declared_may_not_be_proposed(bench: Bench) -> None:
    failed = await bench.fail("done({'resources': [RES]})", capabilities=frozenset())
    assert failed.reason == "capability"
    assert "propose.dynamicConfig" in failed.message


# --- several at once ----------------------------------------------------------------------------------------------


async def test_no_more_runs_than_declared_go_on_at_once(bench: Bench) -> None:
    body = """
import pathlib
running, started = (pathlib.Path(os.environ["MARKS"], name) for name in ("running", "started"))
for marks in (running, started):
    marks.mkdir(exist_ok=True)
    (marks / str(os.getpid())).touch()
deadline = time.monotonic() + 20
while len(os.listdir(started)) < 2 and time.monotonic() < deadline:  # the first run waits for the second
    time.sleep(0.01)
print(len(os.listdir(running)), file=sys.stderr)
(running / str(os.getpid())).unlink()
done({})
"""
    marks = bench.folder / "marks"
    marks.mkdir()
    config = bench.make(body, concurrency=2, env=(("MARKS", str(marks)),))
    outcomes = await asyncio.gather(*[bench.plugins.run(config, manual_request()) for _ in range(4)])
    assert max(int(outcome.stderr) for outcome in outcomes) == 2


async def test_a_plugin_that_fails_does_no_harm_to_the_others(bench: Bench) -> None:
    good = bench.make(CLAIMS, name="good")
    bad = bench.make("os.kill(os.getpid(), signal.SIGKILL)", name="bad")
    runs = [bench.plugins.run(config, manual_request(1)) for config in (good, bad, good)]
    found = await asyncio.gather(*runs, return_exceptions=True)
    assert [type(one) for one in found] == [Outcome, PluginFailed, Outcome]
    assert len((await bench.plugins.run(good, manual_request(1))).result.resources) == 1


async def test_cancelling_a_run_ends_the_process(bench: Bench) -> None:
    mark = bench.folder / "mark"
    config = bench.make(f"open({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(3600)")
    run = asyncio.ensure_future(bench.plugins.run(config, manual_request()))
    await until(lambda: mark.exists() and mark.read_text(), "the plugin to run")
    pid = int(mark.read_text())
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not is_running(pid)


async def test_the_time_of_a_run_is_that_of_the_clock(bench: Bench) -> None:
    clock = ManualClock()
    plugins = Plugins(clock, environment=PATH)
    run = asyncio.ensure_future(plugins.run(bench.make("time.sleep(3600)", timeout=7200 * SECOND), manual_request()))
    await until(lambda: any(wait > 7000 for wait in clock.waits), "the run to have begun")
    clock.advance(7200)
    with pytest.raises(PluginFailed, match="longer than 2h0m0s"):
        await run
    await plugins.close()
