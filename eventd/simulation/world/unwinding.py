"""Silence while the coroutines of dead processes unwind: the run is over, and what they do and log does not count."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unwinding_quietly() -> Iterator[None]:
    """Do not show what happens in the coroutines of dead processes during the block."""
    hook, disabled = sys.unraisablehook, logging.root.manager.disable
    sys.unraisablehook = _ignore
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        sys.unraisablehook = hook


def _ignore(_unraisable: object) -> None:
    """Show nothing."""
