"""Blocks whose lines are bare bodies: positions follow from the block, and a path they all share stands beside them.

Revision ID: 0006
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_AT_ONCE = 64
_BLOCKS = sa.table(
    "blocks", sa.column("position", sa.BigInteger), sa.column("paths", sa.Text), sa.column("lines", sa.Text)
)


def _bare(lines: str, paths: str) -> str:
    rows = [line.split("\t", 2) for line in lines.split("\n")[:-1]]
    if paths and len(json.loads(paths)) == 1:
        return "\n".join([*(body for _, _, body in rows), ""])
    return "\n".join([*(f"{path}\t{body}" for _, path, body in rows), ""])


def upgrade() -> None:
    conn = op.get_bind()
    op.add_column("log_heads", sa.Column("flushes", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    after = -1
    page = sa.select(_BLOCKS).where(_BLOCKS.c.position > sa.bindparam("after")).order_by(_BLOCKS.c.position)
    change = _BLOCKS.update().where(_BLOCKS.c.position == sa.bindparam("at")).values(lines=sa.bindparam("bare"))
    while rows := conn.execute(page.limit(_AT_ONCE), {"after": after}).all():
        conn.execute(change, [{"at": at, "bare": _bare(lines, paths)} for at, paths, lines in rows])
        after = rows[-1][0]
