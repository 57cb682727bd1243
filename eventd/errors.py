"""The errors of a node, worded so that a person can act on them.

EventdError                     base of the errors for a user
├── Invalid                     the input is wrong: fix it and retry
├── NotFound                    the named object does not exist
├── Conflict                    the request contradicts the current state
├── Unauthorized                no key, or an unknown, expired or wrong one
├── Forbidden                   the key may not do this, or the host or origin is not allowed
├── TooLarge                    over a size limit
├── Full                        a limit on stored bytes refuses new events
├── Unavailable                 temporary: the same request may succeed later
│   ├── DatabaseUnavailable     the database does not answer, or is locked, full, replaced or claimed elsewhere
│   └── LakeUnavailable         the lake cannot be read or written: unreachable, full, or not writable
├── DatabaseUnusable            the database is damaged, foreign, or of another schema version
├── DatabaseFault               the database refused a row that should never have been written: an internal error
├── LakeUnusable                the lake is damaged or of another schema version, or no package can access it
├── SettingsError               the node's own settings are wrong
├── MissingExtra                an optional package is needed and not installed
├── SecretUnreadable            a secret's file is missing, unreadable, empty or not valid
├── FenceLost                   the cursor or its selection changed since a step began; the step was not applied
└── CheckFailed                 the command worked and found something wrong

Each error carries `message` (one sentence: what and where), `hint` (what to do; may be empty) and `code`, a stable
name for programs. Errors never carry a secret or a payload.
"""

from __future__ import annotations

from typing import ClassVar


class EventdError(Exception):
    """Base of the errors that a user sees; `code` is for programs."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class Invalid(EventdError):
    """The input is wrong: it must be corrected before a retry."""

    code = "invalid_request"


class NotFound(EventdError):
    """The named object does not exist."""

    code = "not_found"


class Conflict(EventdError):
    """The request contradicts the current state."""

    code = "conflict"


class Unauthorized(EventdError):
    """No key was given, or the key is unknown, expired or not the key of the session."""

    code = "unauthorized"


class Forbidden(EventdError):
    """The key may not do this; at an API without keys, the host or origin of the request is not allowed."""

    code = "forbidden"


class TooLarge(EventdError):
    """The input, or a part of it, is over a size limit."""

    code = "too_large"


class Full(EventdError):
    """A limit on stored bytes refuses new events."""

    code = "full"


class Unavailable(EventdError):
    """The request cannot be served now; the same request may succeed later."""

    code = "unavailable"


class DatabaseUnavailable(Unavailable):
    """The database does not answer, or is locked, full, replaced or claimed by another node."""

    code = "database_unavailable"


class LakeUnavailable(Unavailable):
    """The lake cannot be read or written: unreachable, full, or not writable."""

    code = "lake_unavailable"


class DatabaseUnusable(EventdError):
    """The database is damaged, foreign, or of another schema version."""

    code = "database_unusable"


class LakeUnusable(EventdError):
    """The lake is damaged or of another schema version, or no installed package can access it."""

    code = "lake_unusable"


class DatabaseFault(EventdError):
    """The database refused a row that should never have been written. Trying again does not help."""

    code = "database_fault"


class SettingsError(EventdError):
    """The node's own settings are wrong."""

    code = "settings"

    @property
    def usage(self) -> bool:
        """Return whether the error is in the command line, not in a file or the environment.

        False here; a subclass may override it.
        """
        return False


class MissingExtra(EventdError):
    """An optional package is needed and not installed."""

    code = "missing_extra"


class SecretUnreadable(EventdError):
    """The file of a key or another secret is missing, unreadable, empty or not valid."""

    code = "secret_unreadable"


class FenceLost(EventdError):
    """The cursor was moved, deleted or given another selection since the step began; the step was not applied."""

    code = "fence_lost"


class CheckFailed(EventdError):
    """The command ran without an error, and its check found a problem."""

    code = "check_failed"
