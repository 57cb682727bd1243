"""Alembic's entry. The node hands over an open connection; nothing here knows a URL or a secret."""

from __future__ import annotations

from alembic import context

from eventd.store.schema.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    transaction_per_migration=False,
)
context.run_migrations()
