"""Reads a checkpoint that was kept in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eventd.errors import Invalid
from eventd.runtime.regular_files import NotRegular, read_regular

if TYPE_CHECKING:
    from federation.history.checkpoints import Checkpoint
    from federation.history.notes import SignedNote


def read_kept(file: str | Path, hint: str = "") -> tuple[SignedNote, Checkpoint]:
    """Return the note in a file, and the checkpoint that it states; no signature is verified.

    Raises Invalid, with the `hint`, for a file that holds none, and OSError.
    """
    from federation.errors import HistoryError
    from federation.history.checkpoints import read_checkpoint
    from federation.history.notes import MAX_NOTE, read_note

    try:
        note = read_note(read_regular(Path(file), MAX_NOTE + 1).content)
        return note, read_checkpoint(note.text)
    except NotRegular:
        raise Invalid(f"{file} is not a regular file", hint=hint) from None
    except HistoryError as error:
        raise Invalid(f"{file} is not a checkpoint: {error.message}", hint=hint) from None
