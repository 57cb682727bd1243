"""Completion of names, as a shell asks for it: from a node, in time, and silently if anything goes wrong."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventd.cli.gateway import completion
from tests.integration.cli.conftest import EDGE, Api, Control

KEYS = "admin-key-0001,limited::mine-"
Complete = Callable[[str], list[str]]


@pytest.fixture
def api(sqlite_url: str) -> Iterator[Api]:
    with Api(sqlite_url, keys=KEYS) as found:
        yield found


@pytest.fixture
def complete(control: Control, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Complete:
    """Complete the last word of a command line, as bash does."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def ask(line: str) -> list[str]:
        words = f"routerctl {line}".split(" ")
        with monkeypatch.context() as around:
            around.setenv("_ROUTERCTL_COMPLETE", "complete_bash")
            around.setenv("COMP_WORDS", " ".join(words))
            around.setenv("COMP_CWORD", str(len(words) - 1))
            told = control(code=None)
        assert told.err == ""
        return [line for line in told.lines if line]

    return ask


@pytest.fixture
def edge(api: Api, control: Control, complete: Complete) -> Complete:
    """Complete in a context whose node has the group edge, the topics jobs and joke, and the events e1 and e2."""
    control(
        "context", "add", "here", "--server", api.url, "--key-file", control.file("admin-key-0001\n", "key"), "--use"
    )
    control("apply", "-f", control.file(EDGE))
    for topic in ("jobs", "joke"):
        control("topic", "put", topic)
    for number in (1, 2):
        control("federation", "event", "emit", "--type", "t", "--id", f"e{number}")
    return complete


def test_names_of_all_that_commands_take_are_completed(edge: Complete) -> None:
    assert edge("get eventp") == ["eventpeers"]
    assert edge("get EventP") == ["EventPeer"]
    assert edge("get ep to") == ["to-cloud"]
    assert edge("describe ep/to") == ["ep/to-cloud"]
    assert edge("wait event/e") == ["event/e1", "event/e2"]
    assert edge("wait nod") == ["node"]
    assert edge("federation links --group ") == ["edge"]
    assert edge("federation pause cl") == ["cloud"]
    assert edge("topic get job") == ["jobs"]
    assert edge("topic get x") == []
    assert edge("federation event describe e2") == ["e2"]
    assert edge("federation redeliver cloud --id e") == ["e1", "e2"]
    assert edge("get nokind x") == []
    assert edge("context use h") == ["here"]
    assert edge("get --context h") == ["here"]


def test_values_of_options_and_fields_are_completed_without_a_node(complete: Complete) -> None:
    assert complete("get ep -o js") == ["json", "jsonpath="]
    assert complete("get ep -o ") == ["table", "wide", "json", "yaml", "name", "jsonpath="]
    assert complete("explain eventpeers.ret") == ["eventpeers.retry"]
    assert complete("explain ep.spec.retry.") == ["ep.spec.retry.baseBackoff", "ep.spec.retry.maxBackoff"]
    assert complete("explain Topi") == ["Topic", "TopicRouter"]
    assert complete("explain nokind.s") == []
    assert complete("wait node --for ") == ["ready"]
    assert complete("wait queue/jobs --for c") == ["caught-up"]
    assert complete("wait ep/to-cloud --for state=b") == ["state=backing-off", "state=blocked"]
    assert complete("wait eg/edge --for ") == ["ready", "generation>", "deleted"]
    assert complete("wait topic/x --for ") == ["generation>", "deleted"]
    assert complete("--install-completion z") == ["zsh"]


def test_the_peers_of_a_delivery_are_completed(edge: Complete) -> None:
    assert edge("wait event/e1 --for delivered=cl") == ["delivered=cloud"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_and_installed_for_the_named_shell(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    shown = control("--show-completion", shell).out
    assert f"_ROUTERCTL_COMPLETE=complete_{shell}" in shown
    told = control(f"--install-completion={shell}").out
    file = Path(told.removeprefix(f"completion of {shell} installed in ").partition(":")[0])
    assert file.is_relative_to(tmp_path)
    assert file.read_text().strip() == shown.strip()


@pytest.mark.parametrize("before", ["", "alias l=ls\n", "zstyle ':completion:*' menu select\n"])
def test_the_settings_of_other_programs_in_zsh_stay(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = tmp_path / ".zshrc"
    if before:
        settings.write_text(before)
    for _ in range(2):
        control("--install-completion=zsh")
        lines = [line for line in settings.read_text().splitlines() if line]
        assert lines == [*before.splitlines(), "fpath+=~/.zfunc; autoload -Uz compinit; compinit"]


def test_a_shell_without_completion_is_refused(control: Control) -> None:
    refused = control("--install-completion", "csh", code=2).err
    assert "'csh' is not one of bash, zsh, fish" in refused


def test_without_a_name_it_is_the_present_shell(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.cli.program.shell_completion._present_shell", lambda: "fish")
    assert "complete_fish" in control("--show-completion").out


def test_an_answer_is_kept_for_some_seconds_where_only_its_user_can_read_it(
    edge: Complete, control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert edge("topic get jo") == ["jobs", "joke"]
    control("topic", "delete", "joke")
    assert edge("topic get jo") == ["jobs", "joke"]
    monkeypatch.setattr(completion, "KEPT_SECONDS", 0.0)
    assert edge("topic get jo") == ["jobs"]
    files = list((tmp_path / "cache" / "routerctl" / "completion").iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700


def test_a_key_of_prefixes_gets_its_own_names(api: Api, control: Control, complete: Complete) -> None:
    key = control.file("admin-key-0001\n", "key")
    control("--server", api.url, "--key-file", key, "apply", "-f", control.file(EDGE))
    mine = EDGE.replace("name: edge", "name: mine-edge").replace("edge,", "mine-edge,").replace("to-cloud", "my-peer")
    control("--server", api.url, "--key-file", key, "apply", "-f", control.file(mine))
    limited = f"--server {api.url} --key limited "
    assert complete(f"federation links {limited}--group ") == ["mine-edge"]
    assert complete(f"federation links {limited}--peer ") == ["cloud"]
    assert complete(f"get {limited}eg ") == ["mine-edge"]
    assert complete(f"get {limited}ep ") == ["my-peer"]
    assert complete(f"topic get {limited}") == []


def test_nothing_is_asked_without_a_node(
    complete: Complete, control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control.edge()  # in a database that no node serves
    monkeypatch.setattr(completion, "_call", lambda *_: pytest.fail("a node was asked"))
    assert complete("get ep to") == []
    control(
        "context", "add", "a", "--server", "http://127.0.0.1:1", "--key-command", f"touch {tmp_path}/asked", "--use"
    )
    assert complete("get ep to") == []
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("key", ["", "--key wrong"])
def test_errors_are_silent(api: Api, complete: Complete, tmp_path: Path, key: str) -> None:
    assert complete(f"get --server {api.url} {key} ep ".replace("  ", " ")) == []
    assert complete("get --server http://127.0.0.1:1 ep ") == []
    assert complete("get --context none ep ") == []
    (tmp_path / "config" / "routerctl").mkdir(parents=True)
    (tmp_path / "config" / "routerctl" / "contexts.yaml").write_text("[")
    os.chmod(tmp_path / "config" / "routerctl" / "contexts.yaml", 0o600)
    assert complete("get ep ") == []


def test_a_node_that_does_not_answer_is_given_up(complete: Complete, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert complete(f"get --server http://127.0.0.1:{listening.getsockname()[1]} ep ") == []


@pytest.mark.parametrize("what", ["group", "peer", "topic", "resource", "event"])
def test_only_legal_names_with_the_typed_prefix_are_offered_also_from_an_answer_that_is_kept(
    complete: Complete, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    asked: list[object] = []

    async def call(*_: object) -> dict[str, object]:
        asked.append(None)
        evil = ["edge$(touch${IFS}x)", "e;id", "*", "--yes", "-e", "other", "edge\n", "edge\x1b[2J", "e`id`", "", "e d"]
        return {"names": [*evil, "edge"]}

    monkeypatch.setattr(completion, "_call", call)
    line = {
        "group": "federation links --server http://127.0.0.1:1 --group ",
        "peer": "federation pause --server http://127.0.0.1:1 ",
        "topic": "topic get --server http://127.0.0.1:1 ",
        "resource": "get --server http://127.0.0.1:1 ep ",
        "event": "wait --server http://127.0.0.1:1 event/",
    }[what]
    shown = "event/edge" if what == "event" else "edge"
    for _ in range(2):
        assert complete(f"{line}e") == [shown]
    assert len(asked) == 1
