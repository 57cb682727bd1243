"""Questions on a terminal: what counts as a yes, and that Ctrl-C ends them."""

from __future__ import annotations

import sys

import pytest

from eventd.cli.terminal.confirm import confirm
from eventd.errors import EventdError
from tests.support.processes import Processes

SIGNALLED_UNNOTICED = """
import os, signal, sys, threading, time
from eventd.cli.terminal.confirm import confirm
held, kept_open = os.pipe()
sys.stdin = os.fdopen(held)
def interrupt():
    while threading.main_thread().is_alive():
        time.sleep(0.3)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
try:
    confirm("Continue?")
except KeyboardInterrupt:
    print("interrupted")
"""
"""The signal reaches another thread, so that it interrupts no read: as if it arrived just before the read began."""


@pytest.mark.parametrize("answer", ["y", "Y", "yes", " yes "])
def test_a_yes_is_accepted(processes: Processes, answer: str) -> None:
    done = processes.run([sys.executable, "-c", _asking()], stdin=f"{answer}\n")
    assert (done.stdout, done.stderr) == ("confirmed\n", "Continue? [y/N] ")


@pytest.mark.parametrize("answer", ["", "\n", "n\n", "no\n", "yess\n", "\ny\n"])
def test_anything_else_is_a_no(processes: Processes, answer: str) -> None:
    done = processes.run([sys.executable, "-c", _asking()], stdin=answer)
    assert done.stdout == "nothing was changed\n"


def test_an_interrupt_ends_the_question_although_no_read_notices_it(processes: Processes) -> None:
    done = processes.run([sys.executable, "-c", SIGNALLED_UNNOTICED], seconds=20)
    assert done.stdout == "interrupted\n", done.stderr


def _asking() -> str:
    return f"""
from {confirm.__module__} import confirm
from {EventdError.__module__} import EventdError
try:
    confirm("Continue?")
    print("confirmed")
except EventdError as error:
    print(error)
"""
