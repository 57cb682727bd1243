"""The QUIC library is optional, and an error names the extra that brings it."""

from __future__ import annotations

import sys

import pytest

from eventd.errors import MissingExtra
from eventd.quic.client import connect
from eventd.quic.library import require
from eventd.quic.server import QuicServer
from eventd.quic.trust import ServerTrust
from eventd.runtime.clock import SystemClock
from tests.support.quic_ends import LinkNotes


def test_nothing_is_missing_here() -> None:
    require("EVENTD_QUIC_LISTEN")


def test_the_error_names_the_extra_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qh3", None)
    with pytest.raises(MissingExtra) as caught:
        require("EVENTD_QUIC_LISTEN")
    assert caught.value.message == "EVENTD_QUIC_LISTEN needs the extra quic"
    assert caught.value.hint == "pip install 'routerd-eventd[quic]'"


async def test_a_client_and_a_server_say_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qh3", None)
    with pytest.raises(MissingExtra, match="the extra quic"):
        await connect("127.0.0.1", 1, LinkNotes(), trust=ServerTrust(), clock=SystemClock())
    with pytest.raises(MissingExtra, match="the extra quic"):
        await QuicServer.listen("127.0.0.1", 0, None, None, clock=SystemClock(), spec=None, failed=print)  # type: ignore[arg-type]
