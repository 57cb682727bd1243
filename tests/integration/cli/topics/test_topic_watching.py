"""`routerctl watch`, `topic read --follow` and an open standard input: as processes, next to other commands."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Api, Control
from tests.integration.cli.federation.test_watching import Watch, without_settings
from tests.support.fork_server import spawn
from tests.support.ports import free_port
from tests.support.processes import CONTROL
from tests.support.waiting import wait_for


@pytest.fixture
def there(control: Control) -> Control:
    """A database with the topic jobs, which holds one record."""
    control("topic", "write", "jobs", "1", "--tag", "t")
    return control


def test_a_watch_shows_what_topics_hold_and_then_what_is_written(there: Control) -> None:
    there("topic", "write", "other", "1", "2")
    with closing(Watch(there.folder, "watch", "jobs", "other@1")) as watch:
        assert watch.line().split() == ["TOPIC", "SEQ", "TIME", "NODE", "TAG", "DATA"]
        shown = {watch.line().split()[0] for _ in range(2)}
        assert shown == {"jobs", "other"}
        there("topic", "write", "jobs", '{"n": 2}', "--node", "me")
        topic, seq, _, node, tag, data = watch.line().split()
        assert (topic, seq, node, tag, data) == ("jobs", "2", "me", "-", '{"n":2}')
        assert watch.interrupt() == (0, "")


def test_a_watch_in_json_is_a_line_a_record(there: Control) -> None:
    with closing(Watch(there.folder, "watch", "jobs@0", "-o", "json", "--exclude-node", "me")) as watch:
        assert json.loads(watch.line())["data"] == 1
        there("topic", "write", "jobs", "2", "--node", "me")
        there("topic", "write", "jobs", "3")
        record = json.loads(watch.line())
        assert (record["topic"], record["$seq"], record["data"]) == ("jobs", 3, 3)
        assert watch.interrupt() == (0, "")


def test_a_watch_ends_when_its_topics_are_gone(there: Control) -> None:
    with closing(Watch(there.folder, "watch", "jobs", "-o", "name")) as watch:
        assert watch.line() == "jobs@1"
        there("topic", "delete", "jobs")
        _, err = watch.process.communicate(timeout=20)
        assert (watch.process.returncode, err) == (0, "deleted: topic jobs\n")


def test_the_tail_is_what_comes(there: Control) -> None:
    with closing(Watch(there.folder, "watch", "jobs", "--tail", "-o", "name")) as watch:
        numbers = iter(range(2, 1000))

        def seen() -> bool:
            there("topic", "write", "jobs", str(next(numbers)))
            return watch.process.stdout is not None and _has_come(watch)

        wait_for(seen, "the watch to have begun")
        first = int(watch.line().removeprefix("jobs@"))
        assert first >= 2
        assert watch.interrupt() == (0, "")


def _has_come(watch: Watch) -> bool:
    import select

    assert watch.process.stdout is not None
    return bool(select.select([watch.process.stdout], [], [], 0.05)[0])


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("ghost",), 3, "error: topic 'ghost' does not exist"),
        (("jobs@x",), 1, "error: 'jobs@x' is not TOPIC@SEQ (write a number after the @"),
        ((), 2, "error: "),
    ],
)
def test_a_mistake_is_one_line(there: Control, words: tuple[str, ...], code: int, told: str) -> None:
    found = there("watch", *words, code=code)
    assert found.err.startswith(told)
    assert found.err.count("\n") == 1


def test_reading_follows_what_is_written_until_it_is_told_to_stop(there: Control) -> None:
    with closing(Watch(there.folder, "topic", "read", "jobs", "--follow", "-o", "json")) as reader:
        assert json.loads(reader.line())["data"] == 1
        there("topic", "write", "jobs", '"later"')
        assert json.loads(reader.line())["data"] == "later"
        assert reader.interrupt() == (0, "")


def test_a_node_that_is_not_there_from_the_first_is_not_waited_for(control: Control) -> None:
    at = f"127.0.0.1:{free_port()}"
    for command in (("watch", "jobs"), ("topic", "write", "jobs", "1"), ("topic", "read", "jobs", "--follow")):
        told = control(*command, "--server", at, code=1)
        assert told.err.startswith(f"error: cannot reach http://{at}: ")


def test_over_the_api_a_watch_goes_on_when_the_node_is_back(control: Control, sqlite_url: str) -> None:
    with Api(sqlite_url) as api:
        port = api.port
        control("topic", "write", "jobs", "1", "--server", api.url)
        watch = Watch(control.folder, "watch", "jobs", "-o", "name", "--server", api.url)
        assert watch.line() == "jobs@1"
    with closing(watch), Api(sqlite_url, port=port) as api:
        control("topic", "write", "jobs", "2", "--server", api.url)
        assert watch.line() == "jobs@2"
        assert watch.interrupt() == (0, "")


@contextmanager
def writing(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A `topic write -` whose standard input is open."""
    process: subprocess.Popen[str] = spawn(
        [*CONTROL, "topic", "write", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=without_settings(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_what_comes_in_is_written_before_the_input_ends(there: Control) -> None:
    def held() -> list[str]:
        return there("topic", "read", "jobs", "-o", "name").lines

    with writing(there.folder, "jobs", "-") as process:
        assert process.stdin is not None
        process.stdin.write('"a"\n"b"\n"unfinished')
        process.stdin.flush()
        wait_for(lambda: len(held()) == 3, "two more records")
        out, err = process.communicate('"\n', timeout=20)
    assert (process.returncode, err) == (0, "")
    assert out == "topic/jobs: 3 records written at 2 to 4\n"


def test_a_write_that_waits_for_more_ends_when_it_is_told_to(there: Control) -> None:
    with writing(there.folder, "jobs", "-") as process:
        assert process.stdin is not None
        process.stdin.write("2\n")
        process.stdin.flush()
        wait_for(lambda: len(there("topic", "read", "jobs", "-o", "name").lines) == 2, "another record")
        process.terminate()
        assert process.wait(20) == 128 + 15
        assert process.communicate()[1] in ("", "note: 1 record confirmed as written, the last at seq 2\n")
