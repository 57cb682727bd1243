"""Plugins as programs: files that are not executable, pipes that stay open, and arbitrary bytes as an answer."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eventd.plugins.contract.answer import read_answer
from eventd.plugins.contract.contract import Outcome, PluginFailed, Result
from eventd.plugins.run import plugins as running
from eventd.plugins.run.plugins import Plugins
from eventd.processes import process
from eventd.runtime.clock import SystemClock
from eventd.testing import NOW, ManualClock, until
from tests.support.child_processes import children, descriptors, is_running, programs
from tests.support.plugins import SECOND, manual_request, plugin_config, write_program, write_script

HEAD = '{"apiVersion":"plugin.routerd.net/v1alpha1","kind":"PluginResult","status":'
EMPTY = HEAD + '{"ttl":"5m"}}'


@pytest.fixture
async def plugins() -> AsyncIterator[Plugins]:
    before = descriptors()
    started = Plugins(SystemClock(), environment={"PATH": "/usr/local/bin:/usr/bin:/bin"})
    yield started
    await started.close()
    assert descriptors() == before
    assert not children()


async def run(plugins: Plugins, path: str, count: int = 0, seconds: float = 10) -> Outcome:
    config = plugin_config(executable=path, timeout=round(seconds * SECOND))
    return await plugins.run(config, manual_request(count))


async def fail(plugins: Plugins, path: str, count: int = 0, seconds: float = 10) -> PluginFailed:
    with pytest.raises(PluginFailed) as caught:
        await run(plugins, path, count, seconds)
    return caught.value


def says(folder: Path, answer: bytes) -> str:
    """A program that reads its request and answers with these bytes."""
    (folder / "answer").write_bytes(answer)
    return write_script(folder, f"#!/bin/sh\ncat >/dev/null\ncat {folder}/answer\n")


# --- what is no program -------------------------------------------------------------------------------------------


async def test_a_program_that_is_missing(plugins: Plugins, tmp_path: Path) -> None:
    failed = await fail(plugins, f"{tmp_path}/gone")
    assert (failed.reason, failed.about_plugin, failed.transient) == ("missing", True, False)
    assert failed.message == f"the plugin {tmp_path}/gone does not exist"
    assert failed.hint == "install it there, or change spec.executable of the Plugin"
    assert 0 < failed.started_at <= failed.completed_at


async def test_a_program_below_a_file(plugins: Plugins, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert (await fail(plugins, f"{tmp_path}/file/below")).reason == "missing"


async def test_a_folder_is_no_program(plugins: Plugins, tmp_path: Path) -> None:
    failed = await fail(plugins, str(tmp_path))
    assert (failed.reason, failed.about_plugin) == ("not_a_file", True)
    assert failed.message == f"the plugin {tmp_path} is not a regular file"


async def test_a_pipe_is_no_program_and_nobody_waits_for_it(plugins: Plugins, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o755)
    assert (await fail(plugins, f"{tmp_path}/pipe")).reason == "not_a_file"


async def test_a_file_that_may_not_be_executed(plugins: Plugins, tmp_path: Path) -> None:
    path = write_script(tmp_path, "#!/bin/sh\n")
    os.chmod(path, 0o644)
    failed = await fail(plugins, path)
    assert (failed.reason, failed.about_plugin) == ("not_executable", True)
    assert failed.message == f"the plugin {path} is not executable"


async def test_a_script_without_a_first_line(plugins: Plugins, tmp_path: Path) -> None:
    failed = await fail(plugins, write_script(tmp_path, "echo hello\n"))
    assert (failed.reason, failed.about_plugin) == ("cannot_start", True)
    assert failed.message.endswith("is neither a program nor a script")


async def test_a_script_for_an_interpreter_that_is_missing(plugins: Plugins, tmp_path: Path) -> None:
    failed = await fail(plugins, write_script(tmp_path, "#!/no/such/shell\n"))
    assert (failed.reason, failed.about_plugin) == ("cannot_start", True)
    assert failed.message == f"the interpreter /no/such/shell of the plugin {tmp_path}/plugin does not exist"
    assert failed.hint == "install the interpreter, or correct the first line of the plugin"


async def test_a_script_with_the_line_ends_of_windows(plugins: Plugins, tmp_path: Path) -> None:
    failed = await fail(plugins, write_script(tmp_path, "#!/bin/sh\r\necho hello\r\n"))
    assert (failed.reason, failed.about_plugin) == ("cannot_start", True)
    assert failed.hint.startswith("the plugin has Windows line ends")


async def test_no_descriptor_left_is_a_passing_trouble(plugins: Plugins, tmp_path: Path) -> None:
    path = says(tmp_path, EMPTY.encode())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd, _ in descriptors())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    spare = []
    try:
        while True:
            try:
                spare.append(os.dup(0))
            except OSError:
                break
        failed = await fail(plugins, path)
    finally:
        for fd in spare:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (failed.reason, failed.about_plugin, failed.transient) == ("cannot_start", True, True)
    assert (await run(plugins, path)).exit_code == 0


# --- pipes --------------------------------------------------------------------------------------------------------


async def test_a_large_request_that_is_never_read(plugins: Plugins, tmp_path: Path) -> None:
    path = write_script(tmp_path, f"#!/bin/sh\nsleep 0.1\necho '{EMPTY}'\n")
    config = plugin_config(executable=path)
    outcome = await plugins.run(config, manual_request(context=[{"text": "x" * 10_000_000}]))
    assert outcome.exit_code == 0


async def test_a_large_request_is_read_to_its_end_while_the_answer_is_written(plugins: Plugins, tmp_path: Path) -> None:
    body = "import sys\nfor chunk in iter(lambda: sys.stdin.buffer.read(1000), b''): sys.stderr.write('.')"
    path = write_program(tmp_path, f"{body}\nprint({EMPTY!r})")
    config = plugin_config(executable=path)
    outcome = await plugins.run(config, manual_request(context=[{"text": "x" * 5_000_000}]))
    assert len(outcome.stderr) > 4000


async def test_a_standard_input_that_is_closed_at_once(plugins: Plugins, tmp_path: Path) -> None:
    path = write_script(tmp_path, f"#!/bin/sh\nexec <&-\nsleep 0.1\necho '{EMPTY}'\n")
    config = plugin_config(executable=path)
    assert (await plugins.run(config, manual_request(context=[{"text": "x" * 1_000_000}]))).exit_code == 0


async def test_pipes_that_are_closed_before_the_end(plugins: Plugins, tmp_path: Path) -> None:
    path = write_script(tmp_path, f"#!/bin/sh\necho '{EMPTY}'\nexec >&- 2>&- <&-\nsleep 0.1\nexit 3\n")
    assert (await fail(plugins, path)).exit_code == 3


async def test_a_flood_of_output_is_stopped_and_little_of_it_is_held(plugins: Plugins, tmp_path: Path) -> None:
    path = write_script(tmp_path, "#!/bin/sh\nexec head -c 100000000 /dev/zero\n")
    tracemalloc.start()
    try:
        failed = await fail(plugins, path)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert failed.reason == "stdout_too_large"
    assert failed.message == "the plugin was killed: it wrote more than 4096 KiB to its output"
    assert held < 32 << 20


async def test_what_is_left_behind_and_holds_the_output_is_waited_for_only_a_second(
    plugins: Plugins, tmp_path: Path
) -> None:
    path = write_script(tmp_path, f"#!/bin/sh\necho '{EMPTY}'\nsleep 3600 &\necho $! >&2\n")
    begun = asyncio.get_running_loop().time()
    outcome = await run(plugins, path)
    assert 0.9 < asyncio.get_running_loop().time() - begun < 5
    assert outcome.result.ttl == 300 * SECOND
    await until(lambda: not is_running(int(outcome.stderr)), "what was left behind to be ended")


async def test_what_is_left_behind_silently_is_ended_too(plugins: Plugins, tmp_path: Path) -> None:
    path = write_script(tmp_path, f"#!/bin/sh\nsleep 3600 <&- >/dev/null 2>&1 &\necho $! >&2\necho '{EMPTY}'\n")
    outcome = await run(plugins, path)
    await until(lambda: not is_running(int(outcome.stderr)), "what was left behind to be ended")


async def test_what_left_the_session_is_ended_with_the_run(plugins: Plugins, tmp_path: Path) -> None:
    path = write_script(tmp_path, f"#!/bin/sh\necho '{EMPTY}'\nsetsid sleep 3600 &\necho $! >&2\n")
    outcome = await run(plugins, path)
    assert outcome.exit_code == 0
    assert not is_running(int(outcome.stderr))


async def test_a_timeout_counts_from_the_start_and_all_of_the_group_goes(plugins: Plugins, tmp_path: Path) -> None:
    body = "#!/bin/sh\nsleep 3600 &\necho $! >&2\nsleep 3601 &\necho $! >&2\nwait\n"
    failed = await fail(plugins, write_script(tmp_path, body), seconds=0.5)
    assert failed.reason == "timeout"
    left = [int(pid) for pid in failed.stderr.split()]
    assert len(left) == 2
    await until(lambda: not any(map(is_running, left)), "the group to be ended")


async def test_an_end_is_noticed_without_process_descriptors(
    plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(process.os, "pidfd_open")
    path = write_script(tmp_path, f"#!/bin/sh\nsleep 0.1\necho '{EMPTY}'\n")
    assert (await run(plugins, path)).exit_code == 0


# --- answers ------------------------------------------------------------------------------------------------------


async def test_bytes_that_are_no_answer(plugins: Plugins, tmp_path: Path) -> None:
    """See `test_answers` for what is refused."""
    failed = await fail(plugins, says(tmp_path, b"[1, 2]"))
    assert failed.reason == "undecodable"
    assert failed.message == "the plugin's output is not a mapping"
    assert (failed.exit_code, failed.about_plugin, failed.transient) == (0, False, False)
    assert len(failed.stdout_digest) == 64


async def test_as_much_as_is_allowed_is_read_while_the_loop_goes_on(plugins: Plugins, tmp_path: Path) -> None:
    count = 20_000
    resources = ",".join(
        f'{{"apiVersion":"a/v1","kind":"K","metadata":{{"name":"n{n}"}},"spec":{{"a":{n}}}}}' for n in range(count)
    )
    answer = HEAD + f'{{"ttl":"5m","resources":[{resources}]}}}}'
    outcome = await run(plugins, says(tmp_path, answer.encode()))
    assert len(outcome.result.resources) == count


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + '{"ttl":"5m","resources":[' + ",".join(["{}"] * 80_000) + "]}}",
        f"a: &a [{', '.join(['1'] * 1000)}]\nb: [{', '.join(['*a'] * 498)}]\n",
    ],
    ids=["a hundred thousand faults", "aliases"],
)
async def test_a_small_answer_that_takes_long_to_read_does_not_hold_the_loop(
    plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    readers: list[bool] = []

    def read(stdout: bytes, *, now: int) -> Result:
        readers.append(threading.current_thread() is threading.main_thread())
        return read_answer(stdout, now=now)

    monkeypatch.setattr(running, "read_answer", read)
    assert (await fail(plugins, says(tmp_path, answer.encode()))).reason == "refused"
    assert readers == [False]


async def test_a_result_without_a_time_was_observed_now(tmp_path: Path) -> None:
    plugins = Plugins(ManualClock(), environment={"PATH": "/usr/bin:/bin"})
    path = says(tmp_path, EMPTY.encode())
    outcome = await run(plugins, path)
    assert (outcome.result.observed_at, outcome.started_at, outcome.completed_at) == (NOW, NOW, NOW)
    zero = says(tmp_path, (HEAD + '{"ttl":"5m","observedAt":"0001-01-01T00:00:00Z"}}').encode())
    assert (await run(plugins, zero)).result.observed_at == NOW
    await plugins.close()


async def test_many_runs_leave_nothing_behind(plugins: Plugins, tmp_path: Path) -> None:
    path = says(tmp_path, EMPTY.encode())
    config = plugin_config(executable=path, concurrency=8)
    await asyncio.gather(*[plugins.run(config, manual_request()) for _ in range(8)])  # the guards that are kept
    before = len(descriptors())
    await asyncio.gather(*[plugins.run(config, manual_request(10)) for _ in range(30)])
    # A guard that is not kept ends after its run was answered.
    await until(lambda: not programs() and len(descriptors()) == before, "what was started to end")


ENDINGS = {
    "a result": (f"cat >/dev/null\necho '{EMPTY}'", ""),
    "a pipe that is held": (f"echo '{EMPTY}'\nsleep 3600 &", ""),
    "a closed input": (f"exec <&-\nsleep 0.1\necho '{EMPTY}'", ""),
    "an exit code": ("exit 42", "exit_code"),
    "a flood": ("exec head -c 100000000 /dev/zero", "stdout_too_large"),
    "a signal": ("kill -SEGV $$", "killed"),
    "no end": ("sleep 3600", "timeout"),
}


def test_every_ending_is_the_same_on_the_loop_of_a_node(tmp_path: Path) -> None:
    """A node runs on uvloop where there is one: pipes and the ends of processes go through it."""
    uvloop = pytest.importorskip("uvloop")
    found = uvloop.run(_endings(tmp_path))
    assert found == {name: reason for name, (_, reason) in ENDINGS.items()}
    assert not children()


async def _endings(folder: Path) -> dict[str, str]:
    plugins = Plugins(SystemClock(), environment={"PATH": "/usr/bin:/bin"})
    request = manual_request(context=[{"text": "x" * 1_000_000}])
    before, found = descriptors(), {}
    for number, (name, (script, _)) in enumerate(ENDINGS.items()):
        path = write_script(folder, f"#!/bin/sh\n{script}\n", f"p{number}")
        config = plugin_config(executable=path, timeout=2 * SECOND)
        try:
            await plugins.run(config, request)
            found[name] = ""
        except PluginFailed as failed:
            found[name] = failed.reason
    await plugins.close()
    assert descriptors() == before
    return found


@pytest.mark.parametrize("code", ["#!/usr/bin/env no-such-interpreter\n", "#!/bin/sh\nset -e\nno-such-program\n"])
async def test_a_program_that_it_lacks_is_no_events_fault(plugins: Plugins, tmp_path: Path, code: str) -> None:
    file = tmp_path / "plugin"
    file.write_text(code)
    file.chmod(0o755)
    with pytest.raises(PluginFailed) as caught:
        await plugins.run(plugin_config(executable=str(file)), manual_request(1))
    failed = caught.value
    assert (failed.reason, failed.exit_code, failed.about_plugin) == ("missing_program", 127, True)
    assert "no-such-" in failed.stderr
    assert "a program that it needs is missing, or cannot be run: " in failed.message
    assert "no-such-" in failed.message
