"""Ships ledger rows to the lake, in a process of its own, by default at the lowest priority.

A separate process does the work, so that it never holds the interpreter or a core that a delivery needs; the node only
creates and moves the cursors.

    node                                    its shipping process
    LakeSink ──ShipRequest──▶ WorkerClient ══ pipe ══▶  Shipper: reads ledger rows, writes a segment and its
        ◀────────Shipment──────────────────────────     manifest, or adopts one that exists beyond the cursor
    the consumer settles the cursor, in the node's group commit

A segment is named by the range that it covers, and its range begins where the previous one ended. After a crash at any
point, the next attempt finds either no manifest and writes the segment again, or one, and only moves the cursor.

May import: egress.loop, lake, lake.extract, log.core, log.cursors, processes, runtime, store.engine, witnessing.
"""

from __future__ import annotations
