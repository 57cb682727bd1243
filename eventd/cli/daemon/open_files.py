"""How many files a process may open: each connection is one, and the usual limit is that of an interactive program."""

from __future__ import annotations

import logging
import resource

from eventd.settings.model import Settings

BESIDE = 64
"""Files a node needs for itself: its database, its listeners, the pipes of plugins."""

logger = logging.getLogger("eventd.serve")


def raise_file_limit(settings: Settings) -> None:
    """Let the process open as many files as the system lets it, and warn when its API alone may want more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):  # some systems name a limit that they do not grant
            pass
    wanted = settings.max_connections + settings.max_sse_connections + BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        hint = "raise the limit on open files (ulimit -n), or lower max_sse_connections"
        logger.warning("file limit low", extra={"limit": soft, "wanted": wanted, "hint": hint})
