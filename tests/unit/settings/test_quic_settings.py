"""The settings of the QUIC listener."""

from __future__ import annotations

import pytest

from eventd.settings.loading import load
from eventd.settings.model import NAMES
from eventd.settings.problems import BadSettings
from eventd.settings.quic import QuicSettings
from eventd.settings.values import Endpoint


def test_the_listener_is_off_until_it_has_an_address() -> None:
    assert load({}, {}).quic_listen is None
    assert load({}, {"EVENTD_QUIC_LISTEN": "127.0.0.1:5000"}).quic_listen == Endpoint("127.0.0.1", 5000)


def test_certificate_and_key_belong_together() -> None:
    with pytest.raises(BadSettings, match="quic_cert_file needs quic_key_file as well"):
        load({"quic_cert_file": "/tls/node.pem"}, {})
    with pytest.raises(BadSettings, match="quic_key_file needs quic_cert_file as well"):
        load({"quic_key_file": "/tls/node.key"}, {})
    files = load({"quic_cert_file": "/tls/node.pem", "quic_key_file": "credential:node.key"}, {}).quic_tls
    assert files is not None
    assert (files.cert_file, files.key_file) == ("/tls/node.pem", "credential:node.key")
    assert load({}, {}).quic_tls is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("quic_max_frame_bytes", "17MiB"),
        ("quic_max_frame_bytes", "1KiB"),
        ("quic_batch_bytes", "9MiB"),
        ("quic_batch_events", "0"),
        ("quic_ingress_wait", "0s"),
        ("quic_cache_entries", "many"),
        ("quic_listen", "5000"),
    ],
)
def test_a_value_out_of_its_range_names_the_setting(name: str, value: str) -> None:
    with pytest.raises(BadSettings) as raised:
        load({}, {f"EVENTD_{name.upper()}": value})
    assert raised.value.problems[0].origin == f"EVENTD_{name.upper()}"


def test_the_settings_of_the_listener_are_shown_last_and_with_their_units() -> None:
    shown = {row.name: row.value for row in load({}, {}).describe()}
    assert tuple(QuicSettings.model_fields) == NAMES[-len(QuicSettings.model_fields) :]
    assert (shown["quic_cache_bytes"], shown["quic_cache_entries"], shown["quic_batch_delay"]) == (
        "256MiB",
        "1000000",
        "0",
    )
    assert (shown["quic_drain"], shown["quic_max_connections"], shown["quic_batch_events"]) == ("25s", "1024", "64")
