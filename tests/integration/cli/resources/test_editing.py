"""The command edit, with programs as editors."""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path

import pytest

from tests.integration.cli.conftest import EDGE, Control, everywhere


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.cli.terminal.editor.is_terminal", lambda: True)


class Editor:
    """A program that runs Python statements on the lines of the file: the first time the first, and so on."""

    def __init__(self, control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.folder = control.folder / "editor"
        self.folder.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(control.folder))
        self._program = self.folder / "editor.py"
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.setenv("EDITOR", f"{sys.executable} {self._program}")

    def does(self, *steps: str) -> None:
        """Do these steps, one each time the editor is opened; `text` is the content of the file."""
        for seen in self.folder.glob("seen-*"):
            seen.unlink()
        lines = [
            "import os, pathlib, shutil, sys",
            "file, folder = pathlib.Path(sys.argv[-1]), pathlib.Path(__file__).parent",
            "at = len(list(folder.glob('seen-*')))",
            "text = file.read_text()",
            "(folder / f'seen-{at}').write_text(f'{file}\\n{os.stat(file).st_mode}\\n{text}')",
            f"steps = {list(steps)!r}",
            "exec(steps[at])",
            "file.write_text(text)",
        ]
        self._program.write_text("\n".join(lines))

    def seen(self, at: int) -> str:
        """Return what the file held when the editor was opened."""
        return (self.folder / f"seen-{at}").read_text().split("\n", 2)[2]

    @property
    def file(self) -> Path:
        return Path((self.folder / "seen-0").read_text().split("\n")[0])

    @property
    def mode(self) -> int:
        return int((self.folder / "seen-0").read_text().split("\n")[1])


@pytest.fixture
def editor(control: Control, monkeypatch: pytest.MonkeyPatch) -> Editor:
    return Editor(control, monkeypatch)


MOVE = "text = text.replace('127.0.0.1:1', '127.0.0.1:2')"


@everywhere
def test_what_is_saved_is_applied(routerctl: Control, editor: Editor) -> None:
    routerctl.edge()
    editor.does(MOVE)
    assert routerctl("edit", "ep/to-cloud").lines == ["eventpeer/to-cloud configured"]
    row = routerctl("get", "ep/to-cloud", "-o", "json").json
    assert (row["spec"]["endpoint"], row["metadata"]["generation"]) == ("http://127.0.0.1:2", 2)
    assert editor.seen(0).split("\n", 2)[2].startswith("apiVersion: federation.routerd.net/v1alpha1\nkind: EventPeer\n")
    assert stat.S_IMODE(editor.mode) == 0o600
    assert not editor.file.parent.exists()


@pytest.mark.parametrize("step", ["pass", "text = ''", "text = '# only a comment\\n'"])
def test_unchanged_or_empty_is_a_cancellation(control: Control, editor: Editor, step: str) -> None:
    control.edge()
    editor.does(step)
    told = control("edit", "ep", "to-cloud")
    assert (told.out, told.err) == ("", "cancelled: nothing was changed\n")
    assert not editor.file.parent.exists()


def test_a_problem_is_a_comment_with_its_line_and_the_editor_opens_again(control: Control, editor: Editor) -> None:
    control.edge()
    editor.does("text = text.replace('endpoint:', 'endpiont:')", "text = text.replace('endpiont:', 'endpoint:') + '#'")
    assert control("edit", "ep/to-cloud").lines == ["eventpeer/to-cloud unchanged"]
    lines = editor.seen(1).splitlines()
    named = [int(found[1]) for line in lines if (found := re.search(r"# .*line (\d+): .*endpiont", line))]
    assert len(named) == 1, lines
    assert lines[named[0] - 1].startswith("  endpiont:")


def test_another_resource_in_the_file_is_a_problem(control: Control, editor: Editor) -> None:
    control.edge()
    editor.does("text = text.replace('name: to-cloud', 'name: to-other')", "text = ''")
    control("edit", "ep/to-cloud")
    assert "# the file must hold EventPeer/to-cloud of" in editor.seen(1)
    assert control("get", "ep", "-o", "name").lines == ["eventpeer/to-cloud"]


def test_a_problem_that_stays_keeps_the_file(control: Control, editor: Editor) -> None:
    control.edge()
    editor.does("text = text.replace('endpoint:', 'endpiont:')", "pass")
    told = control("edit", "ep/to-cloud", code=1)
    assert told.err == f"error: the problem is still there, nothing was changed (your version is in {editor.file})\n"
    assert "endpiont" in editor.file.read_text()


def test_a_change_by_another_client_meanwhile_is_not_overwritten(
    routerctl: Control, editor: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    routerctl.edge()
    other = routerctl.file(EDGE.replace("127.0.0.1:1", "127.0.0.1:3"), "other.yaml")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))
    meanwhile = f"os.system('{sys.executable} -m eventd.cli.routerctl apply -f {other} >/dev/null'); {MOVE}"
    editor.does(meanwhile)
    told = routerctl("edit", "ep/to-cloud", code=1)
    assert told.err.startswith("error: EventPeer/to-cloud has the generation 2, not 1: it changed meanwhile")
    assert "127.0.0.1:2" in editor.file.read_text()
    assert routerctl("get", "ep/to-cloud", "-o", "jsonpath=.spec.endpoint").out == "http://127.0.0.1:3\n"
    editor.does(f"os.system('{sys.executable} -m eventd.cli.routerctl delete ep to-cloud >/dev/null'); text += '# x'")
    assert "EventPeer/to-cloud was deleted meanwhile" in routerctl("edit", "ep/to-cloud", code=1).err
    editor.does(f"os.system('{sys.executable} -m eventd.cli.routerctl delete eg edge >/dev/null'); text += '# x'")
    assert routerctl("edit", "eg/edge", "--force").lines == ["eventgroup/edge created"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("", "error: no editor is set (set VISUAL or EDITOR"),
        ("no-such-editor", "error: cannot start the editor no-such-editor: No such file or directory"),
        ("false", "error: the editor false exited with status 1; nothing was changed"),
    ],
)
def test_an_editor_that_does_not_work_is_reported(
    control: Control, monkeypatch: pytest.MonkeyPatch, command: str, told: str
) -> None:
    control.edge()
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", command)
    assert control("edit", "ep/to-cloud", code=1).err.startswith(told)


def test_nothing_is_opened_without_a_terminal(
    control: Control, editor: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventd.cli.terminal.editor.is_terminal", lambda: False)
    assert control("edit", "ep/to-cloud", code=1).err.startswith("error: there is no terminal to edit on")
    assert not list(editor.folder.glob("seen-*"))
