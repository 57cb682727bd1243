"""The columns of the tables of outbound links, inbound links and gaps."""

from __future__ import annotations

from eventd.cli.terminal.output import Column, moment, span, text

OUTBOUND = (
    Column("GROUP", text("group")),
    Column("PEER", text("peer")),
    Column("STATE", text("state")),
    Column("REASON", text("reason")),
    Column("WAITING", text("lagEvents")),
    Column("LAG", span("lagSeconds")),
    Column("LAST_SUCCESS", moment("lastSuccessAt")),
    Column("NEXT_ATTEMPT", moment("retryAt")),
    Column("LAST_ERROR", text("lastError")),
    Column("SINCE", moment("since"), wide=True),
    Column("PROTOCOL", text("protocol"), wide=True),
    Column("ATTEMPTS", text("attempts"), wide=True),
    Column("DEAD_LETTERS", text("deadLetters"), wide=True),
    Column("REPAIRS", lambda row: str(len(row["repairs"])), wide=True),
    Column("PAUSED_BY", text("pausedBy"), wide=True),
    Column("POSITION", lambda row: f"{row['position']}/{row['head']}", wide=True),
    Column("ENDPOINT", text("endpoint"), wide=True),
    Column("REMEDY", lambda row: row.get("remedy") or "-", wide=True),
    Column("HISTORY", lambda row: row.get("history") or "-", wide=True),
    Column("SENDS", lambda row: row.get("filter", {}).get("words", "-"), wide=True),
)
INBOUND = (
    Column("GROUP", text("group")),
    Column("FROM", text("node")),
    Column("UPTO", text("upto")),
    Column("GAPS", text("gaps")),
    Column("LAST_BATCH", moment("updatedAt")),
    Column("BASE", text("base"), wide=True),
    Column("EPOCH", text("epoch"), wide=True),
    Column("HISTORY", lambda row: row.get("history") or "-", wide=True),
)
GAPS = (
    Column("GROUP", text("group")),
    Column("FROM", text("node")),
    Column("AFTER", text("after")),
    Column("UPTO", text("upto")),
    Column("REASON", text("reason")),
    Column("RECORDED", moment("recordedAt")),
    Column("GAP", text("id"), wide=True),
    Column("EPOCH", text("epoch"), wide=True),
)
