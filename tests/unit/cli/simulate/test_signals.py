"""A signal that ends a campaign ends it also where Python can raise nothing, and prints nothing there."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

import pytest

from eventd.cli.simulate.signals import CampaignSignals

CALLBACK = ctypes.CFUNCTYPE(None)


def test_a_signal_within_a_callback_of_a_library_is_kept_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    hook = sys.unraisablehook
    with CampaignSignals() as signals:
        CALLBACK(lambda: os.kill(os.getpid(), signal.SIGTERM))()
        assert isinstance(signals.came, SystemExit)
    assert capfd.readouterr() == ("", "")
    assert sys.unraisablehook is hook


def test_another_error_there_is_printed(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    with CampaignSignals():
        CALLBACK(lambda: {}["missing"])()
    assert "KeyError: 'missing'" in capfd.readouterr().err
