"""Programs of plugins end with the node, however it ends, together with all their descendants."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eventd.plugins.contract.contract import Outcome, PluginFailed
from eventd.plugins.run.plugins import Plugins
from eventd.processes import guards, keeper
from eventd.processes.guards import END_SECONDS, MAX_IDLE, START_SECONDS
from eventd.runtime.clock import SystemClock
from eventd.testing import ManualClock, until
from tests.support.child_processes import child_processes, children, descriptors, is_running, programs, reap_orphans
from tests.support.plugins import SECOND, manual_request, plugin_config, write_package, write_script
from tests.support.source import ROOT
from tests.support.waiting import wait_for

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
KEEPER = Path(keeper.__file__).read_text()
EMPTY = '{"apiVersion":"plugin.routerd.net/v1alpha1","kind":"PluginResult","status":{"ttl":"5m"}}'
WAYS_OUT = {
    "stays": "sleep 3600 & echo $! >>{pids}",
    "leaves the session": "setsid sleep 3600 & echo $! >>{pids}",
    "forks twice": "(setsid sh -c 'sleep 3600 & echo $! >>{pids}' &)",
    "ignores what it can": "setsid sh -c 'trap \"\" TERM HUP INT; echo $$ >>{pids}; while :; do sleep 1; done' &",
}
"""What a program starts, writing its number."""
EVERY_WAY_OUT = "\n".join([*WAYS_OUT.values(), "while [ $(wc -l <{pids}) -lt 4 ]; do sleep 0.01; done"])


@pytest.fixture
async def plugins() -> AsyncIterator[Plugins]:
    before = descriptors()
    started = Plugins(SystemClock(), environment=PATH)
    yield started
    await started.close()
    assert descriptors() == before
    assert not children()


def program(folder: Path, body: str, name: str = "plugin") -> str:
    return write_script(folder, f"#!/bin/sh\n{body.replace('{pids}', f'{folder}/pids')}\n", name)


def written(folder: Path, count: int) -> list[int]:
    """The numbers that a program has written, once they are so many."""
    file = folder / "pids"
    wait_for(lambda: file.exists() and len(file.read_text().split()) == count, "the program to run")
    return [int(pid) for pid in file.read_text().split()]


async def run(plugins: Plugins, path: str, **fields: object) -> Outcome:
    return await plugins.run(plugin_config(executable=path, **fields), manual_request())


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# --- the end of the node ------------------------------------------------------------------------------------------

NODE = """
import asyncio, sys
from eventd.runtime.clock import SystemClock
from eventd.plugins.run.plugins import Plugins
from tests.support.plugins import manual_request, plugin_config
async def main():
    program, *functions = sys.argv[1:]
    plugins = Plugins(SystemClock(), environment={"PATH": "/usr/bin:/bin"})
    configs = [plugin_config(executable=program, timeout=3_600_000_000)]
    for name, site in zip(functions[::2], functions[1::2]):
        env = (("PYTHONPATH", site),)
        configs.append(plugin_config(name=name, entry_point=name, timeout=3_600_000_000, env=env))
    await asyncio.gather(*[plugins.run(config, manual_request()) for config in configs])
asyncio.run(main())
"""


def test_nothing_survives_a_node_that_is_killed(tmp_path: Path) -> None:
    """Neither programs nor functions, even those that never come back to Python, nor what they have started."""
    program_path = program(tmp_path, f"{EVERY_WAY_OUT}\necho $$ >>{{pids}}\nwhile :; do sleep 1; done")
    functions = []
    for name, endless in (("busy", "while True: pass"), ("matching", "re.match('(a+)+$', 'a' * 60 + 'b')")):
        body = f"""
import os, re, subprocess
def plugin(events):
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    with open({str(tmp_path / "pids")!r}, "a") as file:
        file.write(f"{{os.getpid()}} {{child.pid}}\\n")
    {endless}
"""
        functions += [name, write_package(tmp_path, body, name)[0][1]]
    node = subprocess.Popen([sys.executable, "-c", NODE, program_path, *functions], cwd=ROOT)
    try:
        left = written(tmp_path, len(WAYS_OUT) + 5)
        assert all(map(is_running, left))
    finally:
        node.kill()
        node.wait()
    wait_for(lambda: not any(map(is_running, left)), "the plugins and what they started to end")
    wait_for(lambda: not [child for child in child_processes() if child.state != "Z"], "its keeper to end")


# --- the end of a run ---------------------------------------------------------------------------------------------


async def test_nothing_survives_a_run(plugins: Plugins, tmp_path: Path) -> None:
    outcome = await run(plugins, program(tmp_path, f"({EVERY_WAY_OUT}) >&- 2>&- <&-\necho '{EMPTY}'"))
    assert outcome.exit_code == 0
    assert not any(map(is_running, written(tmp_path, len(WAYS_OUT))))
    assert not programs()


async def test_nothing_survives_a_timeout(plugins: Plugins, tmp_path: Path) -> None:
    path = program(tmp_path, f"{EVERY_WAY_OUT}\nsleep 3600")
    with pytest.raises(PluginFailed, match="longer than"):
        await run(plugins, path, timeout=SECOND)
    assert not any(map(is_running, written(tmp_path, len(WAYS_OUT))))


async def test_a_chain_of_programs_that_start_each_other_is_ended(plugins: Plugins, tmp_path: Path) -> None:
    """Each process starts the next one in another session, and exits: by the time one is inspected, another runs."""
    link = program(tmp_path, 'echo x >>{pids}\nsetsid "$0" >&- 2>&- <&- &', "link")
    path = program(tmp_path, f"{link} &\nwhile [ ! -s {{pids}} ]; do sleep 0.01; done\necho '{EMPTY}'")
    await run(plugins, path)
    count = len((tmp_path / "pids").read_text().split())
    assert not programs()
    assert len((tmp_path / "pids").read_text().split()) == count


async def test_a_warm_guard_is_used_again_and_few_are_kept(plugins: Plugins, tmp_path: Path) -> None:
    path = program(tmp_path, f"echo $PPID >>{{pids}}\necho '{EMPTY}'")
    for _ in range(5):
        await run(plugins, path)
    assert len(set(written(tmp_path, 5))) == 1
    await asyncio.gather(*[run(plugins, path, concurrency=12) for _ in range(12)])
    (the_keeper,) = child_processes()
    kept = Path(f"/proc/{the_keeper.pid}/task/{the_keeper.pid}/children")
    await until(lambda: len(kept.read_text().split()) == MAX_IDLE, "the other guards to end")


async def test_a_program_inherits_nothing_of_its_guard(plugins: Plugins, tmp_path: Path) -> None:
    code = f"""#!{sys.executable}
import os, signal, sys
own = os.getpid() == os.getsid(0) == os.getpgid(0)
print(sorted(os.listdir('/proc/self/fd')), own, os.getcwd(), signal.pthread_sigmask(0, []), file=sys.stderr)
print(open('/proc/self/status').read().partition('SigIgn:')[2].split()[0], file=sys.stderr)
print({EMPTY!r})
"""
    outcome = await run(plugins, write_script(tmp_path, code))
    files, ignored = outcome.stderr.splitlines()
    assert files == "['0', '1', '2', '3'] True / set()"
    reached = set(signal.Signals) - {signal.SIGPIPE, signal.SIGXFSZ}  # Python itself ignores these two
    assert not [number for number in reached if int(ignored, 16) >> (number - 1) & 1]


async def test_an_environment_of_any_size_is_handed_over(plugins: Plugins, tmp_path: Path) -> None:
    env = tuple((f"V{number}", "x" * 100_000) for number in range(10))
    outcome = await run(plugins, program(tmp_path, f"echo ${{#V9}} >&2\necho '{EMPTY}'"), env=env)
    assert outcome.stderr == "100000\n"


async def test_an_environment_that_is_too_large_is_refused_by_the_system(plugins: Plugins, tmp_path: Path) -> None:
    with pytest.raises(PluginFailed, match="Argument list too long") as caught:
        await run(plugins, program(tmp_path, "true"), env=(("V", "x" * 1_000_000),))
    assert (caught.value.reason, caught.value.transient) == ("cannot_start", False)


# --- faults of the keeper and its guards --------------------------------------------------------------------------


async def begin(plugins: Plugins, folder: Path) -> tuple[asyncio.Future[Outcome], list[int]]:
    """A run under way, and the numbers of its program and of what that has started in another session."""
    path = program(folder, f"{WAYS_OUT['leaves the session']}\necho $$ >>{{pids}}\nsleep 3600")
    under_way = asyncio.ensure_future(run(plugins, path, timeout=3600 * SECOND))
    file = folder / "pids"
    await until(lambda: file.exists() and len(file.read_text().split()) == 2, "the program to run")
    await until(lambda: not any(guard.is_new for guard in plugins._guards._guards), "the node to know that it runs")
    other, leader = map(int, file.read_text().split())
    return under_way, [leader, other]


async def test_a_guard_that_is_killed_leaves_nothing(plugins: Plugins, tmp_path: Path) -> None:
    under_way, pids = await begin(plugins, tmp_path)
    os.kill(parent_of(pids[0]), signal.SIGKILL)
    with pytest.raises(PluginFailed, match="SIGKILL") as caught:
        await under_way
    assert caught.value.transient
    await until(lambda: not any(map(is_running, pids)), "the keeper to end what was left")
    assert (await run(plugins, program(tmp_path, f"echo '{EMPTY}'", "next"))).exit_code == 0


async def test_a_program_that_stops_its_guard_is_ended(tmp_path: Path) -> None:
    clock = ManualClock()
    plugins = Plugins(clock, environment=PATH)
    under_way, pids = await begin(plugins, tmp_path)
    os.kill(parent_of(pids[0]), signal.SIGSTOP)
    clock.advance(3600)
    await until(lambda: clock.waits == [END_SECONDS], "the node to wait for the end")
    clock.advance(END_SECONDS)
    with pytest.raises(PluginFailed, match="longer than"):
        await under_way
    await until(lambda: not any(map(is_running, pids)), "the keeper to end what was left")
    await plugins.close()
    assert not children()


async def test_a_keeper_that_is_killed_stops_no_run_and_is_replaced(tmp_path: Path) -> None:
    plugins = Plugins(SystemClock(), environment=PATH)
    under_way, pids = await begin(plugins, tmp_path)
    (first,) = child_processes()
    os.kill(first.pid, signal.SIGKILL)
    assert (await run(plugins, program(tmp_path, f"echo '{EMPTY}'", "next"))).exit_code == 0
    assert all(map(is_running, pids))
    under_way.cancel()
    await asyncio.wait([under_way])
    assert not any(map(is_running, pids))
    await plugins.close()
    await until(lambda: not reap_orphans(), "the guard that had lost its keeper to end")


async def test_a_keeper_that_is_stopped_holds_one_start_and_is_replaced(tmp_path: Path) -> None:
    clock = ManualClock()
    plugins = Plugins(clock, environment=PATH)
    path = program(tmp_path, f"echo '{EMPTY}'", "next")
    under_way, pids = await begin(plugins, tmp_path)
    (first,) = child_processes()
    os.kill(first.pid, signal.SIGSTOP)
    late = asyncio.ensure_future(run(plugins, path))
    await until(lambda: START_SECONDS in clock.waits, "the program to be waited for")
    clock.advance(START_SECONDS - 1)
    assert not late.done()
    clock.advance(1)
    with pytest.raises(PluginFailed, match="the guard did not start it within 10 s") as caught:
        await late
    assert (caught.value.reason, caught.value.transient) == ("cannot_start", True)
    assert (await run(plugins, path)).exit_code == 0
    under_way.cancel()
    await asyncio.wait([under_way])
    await until(lambda: not any(map(is_running, pids)), "the first program to end")
    await plugins.close()
    await until(lambda: not reap_orphans(), "the guard that had lost its keeper to end")


async def test_a_start_that_is_given_up_leaves_nothing(plugins: Plugins, tmp_path: Path) -> None:
    path = program(tmp_path, "echo $$ >>{pids}\nsleep 3600")
    for _ in range(3):
        late = asyncio.ensure_future(run(plugins, path))
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.wait([late])
    await until(lambda: not programs(), "what was started to end")


async def test_without_subreapers_a_program_is_a_child_and_ends_with_its_group(
    plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    copy = tmp_path / "keeper.py"
    copy.write_text(KEEPER.replace("_SET_CHILD_SUBREAPER: Final = 36", "_SET_CHILD_SUBREAPER: Final = 9999"))
    monkeypatch.setattr(guards.keeper, "__file__", str(copy))
    path = program(tmp_path, f"echo $PPID >>{{pids}}\nsleep 3600 &\necho $! >>{{pids}}\necho '{EMPTY}'")
    await run(plugins, path)
    parent, left = written(tmp_path, 2)
    assert parent == os.getpid()
    await until(lambda: not is_running(left), "its group to end")
    reap_orphans()
    assert "plugin guards unavailable" in caplog.messages


def test_children_are_found_without_the_kernels_list(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "3600"]) as child:
        listed = keeper.children()
        monkeypatch.setattr(keeper, "LIST", "/proc/self/no-such-list/{}")
        assert child.pid in keeper.children()
        assert sorted(keeper.children()) == sorted(listed)
        child.kill()
