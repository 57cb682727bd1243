"""routerctl audit schema."""

from __future__ import annotations

from eventd.cli.gateway.session import Session, offline


@offline()
def schema(session: Session) -> None:
    """Print the JSON Schema of report.json."""
    from eventd.audit.report.json_schema import schema_text

    session.out.document(schema_text())
