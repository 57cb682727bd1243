"""The trouble of a link, in the log: a line when it begins, changes or ends, and none for each try."""

from __future__ import annotations

import logging


class Trouble:
    """What stands in a link's way now: `kind`, empty where nothing does. `about` are the fields of its lines."""

    def __init__(self, logger: logging.Logger, begun: str, ended: str, **about: str) -> None:
        self.kind = ""
        self._logger = logger
        self._begun = begun
        self._ended = ended
        self._about = about

    def note(self, kind: str, detail: str = "") -> None:
        """There is trouble of this kind now, or none any more."""
        if kind and kind != self.kind:
            self._logger.warning(self._begun, extra={**self._about, "state": kind, "error": detail})
        elif self.kind and not kind:
            self._logger.info(self._ended, extra=self._about)
        self.kind = kind
