"""The books of a node, read as columns: what happened here, row by row, for those who check it elsewhere.

A book is a list of facts that only grows. Each row has a `number`; numbers rise in the order of commits, so whoever has
read up to one has seen all there is and ever will be at it or below. What retention took before it was read is told.
"""

from __future__ import annotations

from eventd.lake.schema import Book
from eventd.log.books.extract import Extract, Lost
from eventd.log.books.losing import note_lost
from eventd.log.books.memory import Memory
from eventd.log.books.reading import read_book
from eventd.log.books.state import GroupState, LinkState, Selected, Span, State, read_state

__all__ = [
    "Book",
    "Extract",
    "GroupState",
    "LinkState",
    "Lost",
    "Memory",
    "Selected",
    "Span",
    "State",
    "note_lost",
    "read_book",
    "read_state",
]
