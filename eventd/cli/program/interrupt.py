"""Handles Ctrl-C while a program loads: it exits silently, because nothing has begun. Imports nothing slow."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130


def end_quietly_on_interrupt() -> None:
    """Let Ctrl-C exit without a traceback, until `interrupt_commands`. An ignored signal stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def interrupt_commands() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again: from now on a command has work to finish."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
