"""Counts the attempts at a batch that the other side does not accept, and searches for the record at fault.

A batch that has used up its attempts is delivered by halves. After each half that succeeds, the next attempt is at the
rest of the batch, which must contain the record at fault; its attempts are not counted anew.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tries:
    """The attempts at one batch: `attempt` is the number of the next one, and `most` how many the whole batch has.

    `until` is the end of a batch that was tried before and is not done; None if there is none.
    """

    most: int
    until: int | None = None
    attempt: int = 1

    def forget(self) -> None:
        """Forget the earlier attempts: their batch is done."""
        self.until, self.attempt = None, 1

    def recall(self, until: int, attempt: int) -> None:
        """Note which batch was tried before, and the number of its next attempt."""
        self.until, self.attempt = until, attempt

    @property
    def is_searching(self) -> bool:
        """Return whether the batch has used up its attempts, so that the record at fault is searched for."""
        return self.attempt > self.most

    def passed(self, upto: int, *, found: bool) -> None:
        """Note that everything up to a position is delivered, or that the record at fault was `found` there.

        During the search, the rest of the batch keeps its count.
        """
        if not (self.is_searching and not found and self.until is not None and upto < self.until):
            self.forget()
