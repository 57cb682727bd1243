"""What can happen to a statement of a node on Postgres."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

NODE_URL: Final = "postgresql+psycopg://eventd@postgres/"
"""The URL of a node's database, without its name: the same in every run, because messages of errors contain it."""


class SessionFailure(StrEnum):
    """What happens to a statement. A commit is a statement, too."""

    LOST = "lost"  # the connection breaks before the server has it
    UNANSWERED = "unanswered"  # the server executes it, and then the connection breaks
    UNANSWERED_COMMIT = "unanswered commit"  # the same, of a commit that changes the log
    SERIALIZATION = "serialization"  # the server fails it, because another transaction changed the same rows
    LOCK = "lock"  # another session has a lock, for longer than the statement waits
    KILL = "kill"  # the process ends before the server has it, with its transaction open
