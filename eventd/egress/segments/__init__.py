"""Shipping a node's books to a lake. The work is done by a process of its own, at the lowest priority, so that it never
holds the interpreter, or a core, that a delivery needs; the node only moves the cursors.

    node                                    its shipping process
    Segments ──Step──▶ Courier ══ pipe ══▶  Shipper: reads the books, writes a segment and its manifest
        ◀───Moved───────────────────────    or adopts one that is there beyond the cursor
    settles the cursor, in its group commit

A segment is called by the range that it covers, and the range begins where the last one ended. So whoever is killed
when, the next try finds either nothing, and does it again, or the manifest, and only moves the cursor.
"""

from __future__ import annotations
