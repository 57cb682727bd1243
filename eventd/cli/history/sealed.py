"""Waits until an emitted event is in a signed checkpoint, or in one that peers have cosigned."""

from __future__ import annotations

from typing import Any, Final

from eventd.cli.gateway.session import Session
from eventd.cli.program.values import Duration
from eventd.cli.terminal.output import note
from eventd.errors import CheckFailed
from eventd.runtime.clock import SystemClock
from eventd.text.duration import brief_duration
from eventd.text.plural import counted

_PAUSE: Final = 0.2
"""Seconds between two looks. A checkpoint takes about a second."""


async def wait_sealed(
    session: Session, group: str, event_id: str, witnesses: int, patience: Duration
) -> dict[str, Any]:
    """Return where the leaf of an event is, as soon as a checkpoint covers it, and so many peers have cosigned one.

    Raises CheckFailed if that takes longer than `patience`, or if the event has no leaf. It is stored all the same.
    """
    clock = SystemClock()
    end = clock.monotonic() + patience / 1_000_000
    while True:
        try:
            leaf: dict[str, Any] = await session.call("history.leaf", group=group, id=event_id)
        except CheckFailed as error:
            raise CheckFailed(f"event {event_id} is stored, but: {error.message}", hint=error.hint) from None
        if leaf["sealed"] and leaf["witnesses"] >= witnesses:
            if session.out.is_table:
                done = "sealed" if not witnesses else f"cosigned by {counted(leaf['witnesses'], 'peer')}"
                note(f"{done}: leaf {leaf['leaf']} of {leaf['origin']}, in the checkpoint of size {leaf['size']}")
            return {name: leaf[name] for name in ("origin", "leaf", "size", "signedAt", "witnesses")}
        if clock.monotonic() >= end:
            waited = brief_duration(patience)
            if leaf["sealed"]:
                raise CheckFailed(
                    f"event {event_id} is stored and sealed, but leaf {leaf['leaf']} of {leaf['origin']} was cosigned"
                    f" by {counted(leaf['witnesses'], 'peer')}, and not by {witnesses}, after {waited}",
                    hint="routerctl log witnesses shows who cosigns",
                )
            raise CheckFailed(
                f"event {event_id} is stored, but leaf {leaf['leaf']} of {leaf['origin']} was in no checkpoint after"
                f" {waited}: the last one has size {leaf['size']}",
                hint="routerctl doctor says whether the node seals",
            )
        await clock.sleep(_PAUSE)
