"""Runs one round of a periodic chore; a failure is logged and does not end the node."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any

from eventd.errors import EventdError

logger = logging.getLogger("eventd.housekeeping")


async def attempt(job: str, work: Coroutine[Any, Any, None]) -> bool:
    """Await the work. An error is logged with the name `job` and not raised; the caller's next round tries again.

    Returns whether the work was done.
    """
    try:
        await work
        return True
    except EventdError as error:
        logger.warning("housekeeping failed", extra={"job": job, "error": str(error)})
    except Exception:  # a defect here must not end a node that works
        logger.exception("housekeeping failed", extra={"job": job})
    return False
