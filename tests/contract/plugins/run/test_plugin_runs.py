"""One suite for plugins of every kind: whatever they do, the run ends with a result or a clear reason."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from eventd.plugins.contract.contract import Outcome, PluginFailed
from eventd.plugins.run.plugins import Plugins
from eventd.resources.effective import PluginConfig
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


async def test_events_become_resources(bench: Bench) -> None:
    outcome = await bench.run(CLAIMS, 2)
    assert [found["metadata"]["name"] for found in outcome.result.resources] == ["e1", "e2"]
    assert [found["spec"] for found in outcome.result.resources] == [{"s": "10.0.0.1/32"}, {"s": "10.0.0.2/32"}]
    assert outcome.result.ttl == 300 * SECOND
    assert outcome.exit_code == (0 if bench.kind == "program" else None)
    assert len(outcome.stdout_digest) == 64
    assert outcome.started_at <= outcome.completed_at


async def test_a_thousand_events_with_any_text_go_through(bench: Bench) -> None:
    request = manual_request(1024)
    odd = [replace_subject(event, f'{event.id} żółw 雪 🐌 \u2028 " \\ \t') for event in request.events]
    outcome = await bench.plugins.run(bench.make(CLAIMS), replace(request, events=odd))
    assert [found["spec"]["s"] for found in outcome.result.resources] == [event.subject for event in odd]


def replace_subject(event: Any, subject: str) -> Any:
    import msgspec

    return msgspec.structs.replace(event, subject=subject)


async def test_nothing_to_do_is_a_result(bench: Bench) -> None:
    assert (await bench.run("done({})")).result.resources == []


async def test_the_context_is_handed_over(bench: Bench) -> None:
    resource = {"apiVersion": "n.example/v1", "kind": "Claim", "name": "c", "spec": {"a": 1}}
    config = bench.make("print(json.dumps(context), file=sys.stderr)\ndone({})")
    outcome = await bench.plugins.run(config, manual_request(context=[resource]))
    assert outcome.stderr.strip() == '[{"apiVersion": "n.example/v1", "kind": "Claim", "name": "c", "spec": {"a": 1}}]'


async def test_a_plugin_sees_its_own_variables_and_none_of_the_nodes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTD_API_KEYS", "very-secret")
    outcome = await bench.run(
        "print(json.dumps(dict(os.environ)), file=sys.stderr)\ndone({})", env=(("CLAIM_TTL", "30m"),)
    )
    assert '"CLAIM_TTL": "30m"' in outcome.stderr
    assert '"PATH": "/usr/local/bin:/usr/bin:/bin"' in outcome.stderr
    assert "very-secret" not in outcome.stderr
    assert "EVENTD_" not in outcome.stderr


async def test_it_runs_at_the_root_of_the_file_system_in_a_session_of_its_own(bench: Bench) -> None:
    outcome = await bench.run("print(os.getcwd(), os.getsid(0) == os.getpid(), file=sys.stderr)\ndone({})")
    assert outcome.stderr.strip() == "/ True"


async def test_it_inherits_no_descriptor_of_the_node(bench: Bench) -> None:
    kept = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(kept, True)
    try:
        outcome = await bench.run(f"print(os.path.exists('/proc/self/fd/{kept}'), file=sys.stderr)\ndone({{}})")
    finally:
        os.close(kept)
    assert outcome.stderr.strip() == "False"


# --- runs that fail -----------------------------------------------------------------------------------------------


async def test_an_endless_run_is_ended(bench: Bench) -> None:
    failed = await bench.fail("while True: pass", timeout=SECOND // 5)
    assert (failed.reason, failed.transient, failed.about_plugin) == ("timeout", True, False)
    assert failed.message == "the plugin was killed: it ran longer than 200ms"


async def test_signals_that_are_ignored_do_not_help(bench: Bench) -> None:
    ignored = "for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\n"
    failed = await bench.fail(f"{ignored}time.sleep(3600)", timeout=SECOND // 2)
    assert failed.reason == "timeout"


async def test_what_it_started_ends_with_it(bench: Bench) -> None:
    started = "child = subprocess.Popen(['sleep', '3600'])\nprint(child.pid, file=sys.stderr, flush=True)\n"
    failed = await bench.fail(f"{started}time.sleep(3600)", timeout=SECOND)
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


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("{'ttl': '0s'}", "status.ttl must be longer than 0s, not '0s'"),
        ("{'ttl': '-5m'}", "status.ttl must be longer than 0s, not '-5m'"),
        ("{'ttl': 'soon'}", "status.ttl 'soon' is not a duration; write 30s, 5m or 168h"),
        ("{'ttl': 300}", "status.ttl must be text, not 300"),
        ("{'observedAt': 'today'}", "status.observedAt must be a time such as 2026-05-30T12:00:05Z, not 'today'"),
        ("{'resources': [without(RES, 'apiVersion')]}", "status.resources[0].apiVersion is required"),
        ("{'resources': [RES, {**RES, 'kind': ' '}]}", "status.resources[1].kind is required"),
        ("{'resources': [{**RES, 'metadata': {}}]}", "status.resources[0].metadata.name is required"),
        ("{'resources': [without(RES, 'spec')]}", "status.resources[0].spec is required"),
        ("{'resources': [{**RES, 'spec': []}]}", "status.resources[0].spec must be a mapping of fields"),
        ("{'resources': [{**RES, 'spec': {'a': 2**70}}]}", "contains a whole number of more than 64 bits"),
        ("{'resources': [{**RES, 'spec': {'a': '\\0'}}]}", "contains the character U+0000 or half of a surrogate pair"),
        (
            "{'resources': [{**RES, 'kind': 'EventGroup'}]}",
            "status.resources[0].apiVersion EventGroup is not known in a/v1",
        ),
        (
            "{'resources': [{**RES, 'apiVersion': 'v1'}]}",
            "status.resources[0] must have an apiVersion and a kind such as net.example/v1 and IPv4Route",
        ),
        (
            "{'resources': [{**RES, 'apiVersion': 'config.routerd.net/v1alpha1', 'kind': 'DynamicConfigPart'}]}",
            "status.resources[0].kind DynamicConfigPart is unknown in config.routerd.net/v1alpha1",
        ),
        ("{'directives': [{'op': 'mask'}]}", "status.directives[0].target is required"),
        (
            "{'directives': [{'op': 'mask', 'target': without(TARGET, 'name')}]}",
            "status.directives[0].target.name is required",
        ),
        ("{'directives': [{'op': 'drop', 'target': TARGET}]}", "status.directives[0].op must be mask, not 'drop'"),
        (
            "{'actionPlans': [{**PLAN, 'provider': 'acme'}]}",
            "status.actionPlans[0].provider must be aws, azure, oci or gcp, not 'acme'",
        ),
        (
            "{'actionPlans': [{**PLAN, 'action': 'assign-secondary-ip'}]}",
            "status.actionPlans[0].target.address is required for assign-secondary-ip",
        ),
        (
            "{'actionPlans': [{**PLAN, 'riskLevel': 'none'}]}",
            "status.actionPlans[0].riskLevel must be blank, low, medium or high, not 'none'",
        ),
        ("{'events': [{'message': 'no type'}]}", "status.events[0].type is required"),
    ],
)
async def test_a_result_that_does_not_hold_together_is_refused(bench: Bench, status: str, told: str) -> None:
    failed = await bench.fail(f"done({status})")
    assert failed.reason == "refused"
    assert failed.message.removeprefix("the plugin's answer").lstrip(": ") == told
    assert not failed.about_plugin


@pytest.mark.parametrize(
    ("status", "needed"),
    [
        ("{'resources': [RES]}", "propose.dynamicConfig"),
        ("{'directives': [{'op': 'mask', 'target': TARGET}]}", "propose.dynamicConfig"),
        ("{'actionPlans': [PLAN]}", "propose.providerAction"),
        ("{'events': [{'type': 'seen'}]}", "emit.events"),
    ],
)
async def test_what_is_not_declared_may_not_be_proposed(bench: Bench, status: str, needed: str) -> None:
    failed = await bench.fail(f"done({status})", capabilities=frozenset())
    assert failed.reason == "capability"
    assert needed in failed.message
    assert (await bench.run(f"done({status})", capabilities=frozenset((needed,)), name="trusted")).result


async def test_action_plans_are_never_executed(bench: Bench) -> None:
    everything = frozenset(("propose.providerAction", "execute.providerAction"))
    failed = await bench.fail("done({'actionPlans': [{**PLAN, 'mode': 'execute'}]})", capabilities=everything)
    assert failed.message == "the plugin's answer: status.actionPlans[0].mode must not be execute"


async def test_a_resource_that_is_named_twice_must_say_the_same(bench: Bench) -> None:
    same = await bench.run("done({'resources': [RES, RES, {**RES, 'kind': 'L'}]})")
    assert [found["kind"] for found in same.result.resources] == ["K", "L"]
    failed = await bench.fail("done({'resources': [RES, {**RES, 'spec': {'a': 1}}]})", name="other")
    assert failed.message == "the plugin's answer: status.resources[1] defines a/v1/K/n again with other content"


async def test_unknown_fields_are_passed_over(bench: Bench) -> None:
    outcome = await bench.run("done({'later': 1, 'resources': None, 'events': [{'type': 't', 'later': 2}]})")
    assert list(outcome.result.events) == [{"type": "t", "later": 2}]


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
    outcomes = await asyncio.gather(*[bench.plugins.run(config, manual_request()) for _ in range(6)])
    assert max(int(outcome.stderr) for outcome in outcomes) == 2


async def test_a_plugin_that_fails_does_no_harm_to_the_others(bench: Bench) -> None:
    good = bench.make(CLAIMS, name="good")
    bad = bench.make("os.kill(os.getpid(), signal.SIGKILL)", name="bad")
    runs = [bench.plugins.run(config, manual_request(1)) for config in (good, bad, good, bad, good)]
    found = await asyncio.gather(*runs, return_exceptions=True)
    assert [type(one) for one in found] == [Outcome, PluginFailed, Outcome, PluginFailed, Outcome]
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
