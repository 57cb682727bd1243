"""Writes the tables of the report as Parquet, with all rows, also those that report.json leaves out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from eventd.audit.report.file_names import TABLES
from eventd.audit.report.findings import Finding
from eventd.audit.report.report import Hour, Pair, Report
from eventd.audit.verdicts.hourly_figures import LEGS
from eventd.audit.verdicts.pair_figures import COUNTED
from eventd.lake.extra import parquet, pyarrow
from eventd.lake.storage import Storage

_LEGS: Final = tuple(LEGS.values())
_COUNTS: Final = ("expected", *COUNTED[1:], "duplicates", "bytes")


def schemas() -> dict[str, Any]:
    """Return the Arrow schema of each table, by name."""
    pa = pyarrow()
    text, number, real = pa.string(), pa.int64(), pa.float64()
    counts = [(name, number) for name in _COUNTS] + [("completeness", real)]
    pair = [("group", text), ("source", text), ("peer", text)]
    hour = [("hour", pa.timestamp("us", tz="UTC"))]
    spread = [(f"{leg}_{at}", real) for leg in _LEGS for at in ("p50", "p95", "p99")]
    attempts = [("attempts_p50", number), ("attempts_p95", number)]
    return {
        "balance": pa.schema([*pair, *hour, *counts]),
        "findings": pa.schema(
            [
                *(("kind", text), *pair, ("first", number), ("last", number), ("id", text), ("detail", text)),
                *((name, text) for name in ("sender", "at", "batch", "receipt_digest", "key_id")),
                *((name, pa.list_(text)) for name in ("fingerprints", "values")),
                ("new", pa.bool_()),
                ("acknowledged", pa.bool_()),
            ]
        ),
        "pairs": pa.schema(
            [
                *pair,
                *counts,
                ("senders", pa.list_(text)),
                ("state", text),
                ("proof", text),
                ("proven_until", pa.timestamp("us", tz="UTC")),
                *((name, number) for name in ("receipts_after", "claims_after", "claimed")),
                ("lag", real),
                *attempts,
                *spread,
                *((f"{leg}_max", real) for leg in _LEGS),
                *((name, real) for name in ("skew_ms", "skew_error_ms")),
                ("slo", text),
                ("slo_reason", text),
            ]
        ),
        "hours": pa.schema([*pair, ("type", text), *hour, *counts, *attempts, *spread]),
        "keys": pa.schema(
            [
                *((name, text) for name in ("node", "group", "key_id", "protocol")),
                ("requests", number),
                *((name, pa.timestamp("us", tz="UTC")) for name in ("first", "last")),
            ]
        ),
    }


def make_tables(report: Report, findings: Iterable[Finding], hours: Sequence[Hour]) -> dict[str, Any]:
    """Return all tables of a report, by name."""
    rows: dict[str, list[dict[str, Any]]] = {
        "balance": _balance(hours),
        "findings": [row for finding in findings for row in _finding(finding)],
        "pairs": [_pair(pair) for pair in report.pairs],
        "hours": [msgspec.structs.asdict(hour) for hour in hours],
        "keys": [msgspec.structs.asdict(key) for key in report.keys],
    }
    return {name: _table(rows[name], schema) for name, schema in schemas().items()}


def table_path(name: str) -> str:
    """Return the path of the file of a table in the output."""
    return f"{TABLES}/{name}/part-0.parquet"


def write_tables(out: Storage, tables: Mapping[str, Any]) -> dict[str, str]:
    """Write tables as Parquet instead of those of an earlier run, and return the SHA-256 (hex) of each file by path.

    Raises LakeUnavailable.
    """
    digests = {}
    for name, table in tables.items():
        path = table_path(name)
        with out.create(path) as draft:
            parquet().write_table(table, draft, compression="zstd")
        digests[path] = draft.written.sha256
    # Readers take all Parquet files in a folder for one table.
    out.delete([file.path for file in out.list(TABLES) if file.path not in digests and file.path.endswith(".parquet")])
    return digests


def _table(rows: Sequence[Mapping[str, Any]], schema: Any) -> Any:
    pa = pyarrow()
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_timestamp(field.type):
            columns.append(_times(values))
        else:
            columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _times(values: Sequence[Any]) -> Any:
    pa = pyarrow()
    return (
        pa.array([None if value is None else str(value).removesuffix("Z") for value in values], pa.string())
        .cast(pa.timestamp("us"))
        .cast(pa.timestamp("us", tz="UTC"))
    )


def _balance(hours: Iterable[Hour]) -> list[dict[str, Any]]:
    """Return the rows of the table `balance`: the hours of each pair, summed over all types, sorted."""
    joined: dict[tuple[str, str, str, str], Counter[str]] = defaultdict(Counter)
    unproven: set[tuple[str, str, str, str]] = set()
    for hour in hours:
        key = (hour.group, hour.source, hour.peer, hour.hour)
        joined[key].update({name: getattr(hour, name) for name in _COUNTS})
        if hour.completeness is None:
            unproven.add(key)
    rows = []
    for key, counts in sorted(joined.items()):
        row: dict[str, Any] = dict(zip(("group", "source", "peer", "hour"), key, strict=True)) | dict(counts)
        due = counts["delivered"] + counts["missing"] + counts["disputed"]
        row["completeness"] = None if key in unproven else 100.0 if not due else 100 * counts["delivered"] / due
        rows.append(row)
    return rows


def _finding(finding: Finding) -> list[dict[str, Any]]:
    row = {name: getattr(finding, name) for name in ("group", "source", "peer", "first", "last", "detail")}
    known = {entry.id: msgspec.structs.asdict(entry) for entry in finding.evidence}
    new, acknowledged = frozenset(finding.new_ids), frozenset(finding.acknowledged_ids)
    return [
        {
            "kind": finding.kind.value,
            "id": one,
            "new": None if finding.new is None else one in new or finding.new == finding.events,
            "acknowledged": one in acknowledged or finding.acknowledged == finding.events,
            **row,
            **known.get(one, {}),
        }
        for one in finding.ids or ("",)
    ]


def _pair(pair: Pair) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(pair, name) for name in ("group", "source", "peer", *_COUNTS, "completeness")}
    row |= {"senders": list(pair.senders), "state": pair.state, "proof": pair.proof, "lag": pair.lag}
    row |= {name: getattr(pair, name) for name in ("proven_until", "receipts_after", "claims_after", "claimed")}
    row |= {"attempts_p50": pair.attempts.p50, "attempts_p95": pair.attempts.p95}
    for leg in _LEGS:
        latency = getattr(pair.latencies, leg)
        row |= {f"{leg}_{at}": getattr(latency, at) for at in ("p50", "p95", "p99", "max")}
    if pair.skew is not None:
        row |= {"skew_ms": pair.skew.ms, "skew_error_ms": pair.skew.error_ms}
    return row | {"slo": pair.slo.verdict, "slo_reason": pair.slo.reason}
