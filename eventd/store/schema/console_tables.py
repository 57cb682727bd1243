"""The tables of the console: the sessions of browsers that signed in."""

from __future__ import annotations

import sqlalchemy as sa

from eventd.store.schema.columns import Micros, metadata

console_sessions = sa.Table(
    "console_sessions",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),  # SHA-256 of the cookie's value (hex)
    sa.Column("key_digest", sa.Text, nullable=False),  # of the API key that signed in (hex): its permissions count
    sa.Column("key_name", sa.Text, nullable=False),  # empty for a key of the settings
    sa.Column("address", sa.Text, nullable=False),  # of the browser
    sa.Column("created_at", Micros, nullable=False),
    sa.Column("used_at", Micros, nullable=False),  # written at most once a minute
    sa.Column("expires_at", Micros, nullable=False),
)
