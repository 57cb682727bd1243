"""The JSON Schema of report.json, made from its model."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from eventd.audit.report.report import SCHEMA, Report

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of report.json. A field with a default may be absent; unknown fields are allowed."""
    made = msgspec.json.schema(Report)
    report = made["$defs"]["Report"]
    report["properties"]["schema"] = {"enum": [SCHEMA]}
    report["required"] = ["schema", *report["required"]]
    return {"$schema": DIALECT, "title": f"report.json of an audit, schema {SCHEMA}", **made}


def schema_text() -> str:
    """Return the JSON Schema of report.json as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report_schema()), indent=1).decode()
