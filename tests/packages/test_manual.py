"""The manual pages and completions are those of the commands as they are, and formatters accept them."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from deploy.release import completions
from deploy.release.manual.mdoc import Page
from deploy.release.manual.pages import MAN, pages
from eventd.settings.model import Settings

expected_pages = cache(pages)
"""Made when a test needs them, and not when tests are collected."""
STORED = {file.relative_to(MAN).as_posix(): file for file in sorted(MAN.rglob("*.*"))}


def test_every_manual_page_is_that_of_its_command_and_there_is_no_other() -> None:
    differing = [
        name for name, text in expected_pages().items() if name not in STORED or STORED[name].read_text() != text
    ]
    assert not differing, "run make manual, and commit deploy/man"
    assert expected_pages().keys() == STORED.keys()


def test_the_completions_are_those_that_routerctl_prints() -> None:
    stored = {name: (completions.FOLDER / name).read_text() for name in completions.FILES.values()}
    assert stored == completions.scripts(), "run make manual, and commit deploy/completions"


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_can_read_its_completion(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", completions.FOLDER / completions.FILES[shell]], check=True)


@pytest.mark.mandoc
def test_no_page_has_a_warning() -> None:
    done = lint(*STORED.values())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.mandoc
def test_a_broken_page_has_one(tmp_path: Path) -> None:
    (tmp_path / "broken.1").write_text(str(Page("broken", 1, "a page")) + ".Sh EMPTY\n.Bl -tag\n")
    assert "WARNING" in lint(tmp_path / "broken.1").stdout


@pytest.mark.mandoc
def test_text_is_shown_as_it_is_written(tmp_path: Path) -> None:
    """Signs that a formatter would change, lines that begin like a macro, arguments named like one."""
    page = Page("text", 1, "signs")
    page.heading("DESCRIPTION")
    written = "Dashes --like-this, quotes 'a' \"b\", back\\slash, ~/.config, ^C, `Ns`, `two words`, (`code`), `.`, µs."
    page.text(written)
    page.literal(".Sh is no heading", "'quoted")
    (tmp_path / "text.1").write_text(str(page))
    shown = subprocess.run(["mandoc", "-T", "utf8", tmp_path / "text.1"], capture_output=True, text=True, check=True)
    plain = " ".join(re.sub(r".\x08", "", shown.stdout).replace("‘", "`").replace("’", "`").split())
    assert written in plain.replace("’", "'")
    assert ".Sh is no heading 'quoted" in plain


def test_an_option_that_only_resembles_a_shared_one_is_on_the_page_of_its_command() -> None:
    daemon, topic = expected_pages()["man8/routerd-eventd.8"], expected_pages()["man1/routerctl-topic.1"]
    assert "Fl \\-server Ar URL" in daemon  # of `probe`
    assert "Fl \\-server" not in topic
    assert "Fl \\-server Ar URL" in expected_pages()["man1/routerctl.1"]


def test_the_page_of_settings_has_all_of_them() -> None:
    text = expected_pages()["man5/routerd-eventd.conf.5"]
    assert [name for name in Settings.model_fields if f".It Ic {name}\n" not in text] == []


def lint(*files: Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed (Debian: apt-get install mandoc)")
    return subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *files], capture_output=True, text=True)
