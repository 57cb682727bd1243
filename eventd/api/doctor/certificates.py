"""Checks when the node's certificates end, and whether peers fail to connect over TLS. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eventd.api.doctor.facts import GroupFacts
from eventd.api.doctor.report import Check, CheckStatus
from eventd.api.framework.moments import show_time
from eventd.text.plural import counted
from eventd.tls.state import DAY, FAIL, WARN, CertificateState


def check_certificates(states: Iterable[CertificateState], now: int) -> Iterator[Check]:
    """Yield a check for each certificate that ends soon or cannot be used. `now` in microseconds."""
    for state in states:
        if state.trouble:
            remedy = "correct the files; until then the node uses what it read before, if anything"
            yield _of(state, CheckStatus.FAIL, "certificate-unusable", state.trouble, remedy)
        elif state.ends is not None and state.ends - now < WARN:
            status = CheckStatus.FAIL if state.ends - now < FAIL else CheckStatus.WARN
            days = counted(max(0, state.ends - now) // DAY, "day")
            detail = f"{state.file} ends at {(show_time(state.ends) or '')[:19]}Z, in {days}"
            yield _of(state, status, "certificate-ends", detail, "renew it; the node reads the new files by itself")


def _of(state: CertificateState, status: CheckStatus, code: str, detail: str, remedy: str) -> Check:
    return Check(f"{state.name} certificate", status, code, detail, remedy, group=state.group, peer=state.peer)


def check_handshakes(group: GroupFacts) -> Iterator[Check]:
    """Yield a check if connections of peers were refused lately for a reason of TLS."""
    if group.refused_handshakes:
        parts = [f"{reason}: {count:,}" for reason, count in sorted(group.refused_handshakes.items())]
        detail = f"connections refused within the last hour: {'; '.join(parts)}"
        remedy = "the node's log names the address for each reason; see docs/operations/troubleshooting.md"
        name = f"{group.name} handshakes"
        yield Check(name, CheckStatus.WARN, "handshakes-refused", detail, remedy, group=group.name)
