"""Raises the limit of open files: each connection needs a file, and the usual limit suits interactive programs."""

from __future__ import annotations

import logging
import resource

from eventd.settings.model import Settings

BESIDE = 64
"""Number of open files that a node needs besides connections: for its database, its listeners, the pipes of
plugins."""

logger = logging.getLogger("eventd.serve")


def raise_file_limit(settings: Settings) -> None:
    """Raise this process's limit to the hard limit if that is allowed; log a warning if the API may need more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):  # some systems name a limit that they do not grant
            pass
    listeners = 2 if settings.local_socket else 1
    wanted = listeners * settings.max_connections + settings.max_sse_connections + BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        hint = "raise the limit on open files (ulimit -n), or lower max_sse_connections"
        logger.warning("file limit low", extra={"limit": soft, "wanted": wanted, "hint": hint})
