"""Documents may come through a pipe, as `<(…)` of a shell is one; one that never ends is not waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eventd.resources.reading import documents
from eventd.resources.reading.documents import read_sources
from tests.unit.resources.samples import GROUP

READ = "import sys; from eventd.resources.reading.documents import read_sources; print(read_sources(sys.argv[1:]))"


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.fixture
def writers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def test_documents_are_read_from_the_output_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "edge.yaml").write_text(GROUP)
    command = ["bash", "-c", f'{sys.executable} -c "$0" <(cat edge.yaml)', READ]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "problems=()" in found.stdout
    assert "EventGroup" in found.stdout


def test_a_pipe_is_read_to_its_end_however_it_is_written(pipe: Path, writers: ThreadPoolExecutor) -> None:
    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            for line in GROUP.encode().splitlines(keepends=True):
                file.write(line)

    writers.submit(write)
    loaded = read_sources([str(pipe)])
    assert [draft.label for draft in loaded.drafts] == ["EventGroup/edge"]


def test_a_pipe_that_never_ends_is_read_up_to_the_largest_size(
    pipe: Path, writers: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MAX_BYTES", 1 << 20)

    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            while True:
                file.write(b"#" * 65_536)

    writing = writers.submit(write)
    (problem,) = read_sources([str(pipe)]).problems
    assert problem.message == "is larger than 1 MiB, the most that is read: split it"
    assert isinstance(writing.exception(), BrokenPipeError)


def test_a_pipe_without_a_writer_is_given_up(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "PIPE_SECONDS", 0)
    (problem,) = read_sources([str(pipe)]).problems
    assert problem.message == "cannot be read: its writer was silent for 0 s"


def test_a_pipe_whose_writer_waits_is_given_up(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "PIPE_SECONDS", 0)
    with open(pipe, "r+b", buffering=0) as file:
        file.write(GROUP.encode())
        (problem,) = read_sources([str(pipe)]).problems
    assert problem.message == "cannot be read: its writer was silent for 0 s"
