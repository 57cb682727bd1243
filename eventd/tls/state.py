"""The certificates that a node uses, each with its expiry, for metrics, the log and doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eventd.text.duration import DAY

WARN: Final = 21 * DAY
"""A certificate that expires within this time, in microseconds, is reported."""
FAIL: Final = 3 * DAY
"""A certificate that expires within this time, in microseconds, is a failed check of doctor."""


@dataclass(frozen=True, slots=True)
class CertificateState:
    """A certificate of this node: the API's (no `group`), a listener's (no `peer`), or the one shown to a peer.

    `file` is as declared; `expires` in microseconds, None if no certificate could be read; `trouble`: why its files
    cannot be used as they are now, empty if they can.
    """

    group: str
    peer: str
    file: str
    expires: int | None
    trouble: str = ""

    @property
    def name(self) -> str:
        """Return what uses the certificate, in words."""
        if not self.group:
            return "API"
        return f"{self.group} listener" if not self.peer else f"{self.group}/{self.peer} link"
