"""Checks when the node's certificates expire, and whether peers fail to connect over TLS. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eventd.api.doctor.facts import GroupFacts
from eventd.api.doctor.report import Check, CheckStatus
from eventd.text.duration import DAY
from eventd.text.plural import counted
from eventd.tls.certificate import show_moment
from eventd.tls.state import FAIL, WARN, CertificateState


def check_certificates(states: Iterable[CertificateState], now: int) -> Iterator[Check]:
    """Yield a check for each certificate that expires soon or cannot be used. `now` in microseconds."""
    for state in states:
        if state.trouble:
            remedy = "correct the files; until then the node uses what it read before, if anything"
            yield _of(state, CheckStatus.FAIL, "certificate-unusable", state.trouble, remedy)
        elif state.expires is not None and state.expires - now < WARN:
            status = CheckStatus.FAIL if state.expires - now < FAIL else CheckStatus.WARN
            yield _of(
                state,
                status,
                "certificate-expires",
                _expiry(state.file, state.expires, now),
                "renew it; the node reads the new files by itself",
            )


def _expiry(file: str, expires: int, now: int) -> str:
    moment = show_moment(expires)
    if expires <= now:
        return f"{file} has expired at {moment}"
    return f"{file} expires at {moment}, in {counted((expires - now) // DAY, 'day')}"


def _of(state: CertificateState, status: CheckStatus, code: str, detail: str, remedy: str) -> Check:
    return Check(f"{state.name} certificate", status, code, detail, remedy, group=state.group, peer=state.peer)


def check_handshakes(group: GroupFacts) -> Iterator[Check]:
    """Yield a check if connections or requests of peers were refused lately because of TLS."""
    if group.refused_handshakes:
        parts = [f"{reason}: {count:,}" for reason, count in sorted(group.refused_handshakes.items())]
        detail = f"refused within the last hour because of TLS: {'; '.join(parts)}"
        remedy = "the node's log names the address for each reason; see docs/operations/troubleshooting.md"
        name = f"{group.name} handshakes"
        yield Check(name, CheckStatus.WARN, "handshakes-refused", detail, remedy, group=group.name)
