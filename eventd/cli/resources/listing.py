"""Lists declared resources: reads them, and has the columns of each kind's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eventd.cli.gateway.session import Session
from eventd.cli.terminal.output import Column, show_moment
from eventd.text.plural import counted


def full_name(row: Mapping[str, Any]) -> str:
    """Return `kind/name` of a resource, or of a change of one."""
    name = row["name"] if "name" in row else row["metadata"]["name"]
    return f"{row['kind'].lower()}/{name}"


def _created(row: Mapping[str, Any]) -> str:
    return show_moment(row["metadata"]["creationTimestamp"])


def _listen(row: Mapping[str, Any]) -> str:
    listen = row["spec"].get("listen") or {}
    return f"{listen['address']}:{listen['port']}" if listen.get("address") else "-"


def _spec(path: str, default: str = "-") -> Any:
    def show(row: Mapping[str, Any]) -> str:
        value: Any = row["spec"]
        for step in path.split("."):
            value = (value or {}).get(step)
        return ",".join(value) if isinstance(value, list) and value else str(value or default)

    return show


def _sources(row: Mapping[str, Any]) -> str:
    return ",".join(rule["source"] for rule in row["spec"].get("allow", [])) or "-"


def _source(row: Mapping[str, Any]) -> str:
    source = row["spec"].get("source") or {}
    return f"group:{source['groupRef']}" if source.get("groupRef") else str(source.get("topic") or "-")


def _signing_keys(row: Mapping[str, Any]) -> str:
    keys = (row["spec"].get("signing") or {}).get("keys", [])
    return ",".join(key["id"] for key in keys if key.get("state", "active") in ("active", "retiring")) or "-"


def _tenant_keys(row: Mapping[str, Any]) -> str:
    spec = row["spec"]
    written = len((spec.get("jwks") or {}).get("keys", []))
    own = "exchange" if spec.get("exchange") else "-"
    return str(spec.get("jwksURL") or spec.get("jwksFile") or (counted(written, "key") if written else own))


def _durability(row: Mapping[str, Any]) -> str:
    spec = row["spec"]
    return str(spec.get("durability") or ("fsync" if spec.get("durable") else "disk"))


def _filter(row: Mapping[str, Any]) -> str:
    value = row["spec"].get("filter") or "-"
    return value if isinstance(value, str) else " ".join(value)


_NAME = Column("NAME", lambda row: row["metadata"]["name"])
_GENERATION = Column("GENERATION", lambda row: str(row["metadata"]["generation"]), wide=True)
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "EventGroup": (
        _NAME,
        Column("NODE", _spec("nodeName")),
        Column("LISTEN", _listen),
        Column("PROTOCOLS", _spec("protocols", "v1,v2")),
        Column("CREATED", _created),
        _GENERATION,
    ),
    "EventPeer": (
        _NAME,
        Column("GROUP", _spec("groupRef")),
        Column("NODE", _spec("nodeName")),
        Column("ENDPOINT", _spec("endpoint")),
        Column("PROTOCOL", _spec("protocol", "auto")),
        Column("CREATED", _created),
        Column("TYPES", _spec("types", "all"), wide=True),
        Column("SUBJECT_PREFIXES", _spec("subjectPrefixes", "all"), wide=True),
        _GENERATION,
    ),
    "Plugin": (
        _NAME,
        Column("RUNS", lambda row: row["spec"].get("executable") or f"entry point {row['spec'].get('entryPoint')}"),
        Column("TIMEOUT", _spec("timeout", "10s")),
        Column("CAPABILITIES", _spec("capabilities")),
        Column("CREATED", _created),
        Column("CONCURRENCY", _spec("concurrency", "4"), wide=True),
        _GENERATION,
    ),
    "EventSubscription": (
        _NAME,
        Column("GROUP", _spec("groupRef")),
        Column("PLUGIN", _spec("trigger.pluginRef")),
        Column("TYPES", _spec("match.types")),
        Column("CREATED", _created),
        Column("BATCH_WINDOW", _spec("trigger.batchWindow"), wide=True),
        Column("DEBOUNCE", _spec("trigger.debounce"), wide=True),
        Column("SUBJECT_PREFIXES", _spec("match.subjectPrefixes", "all"), wide=True),
        _GENERATION,
    ),
    "EventCallback": (
        _NAME,
        Column("SOURCE", _source),
        Column("URL", _spec("url")),
        Column("FORMAT", _spec("format", "standard")),
        Column("KEYS", _signing_keys),
        Column("CREATED", _created),
        Column("TYPES", _spec("match.types", "all"), wide=True),
        Column("IN_FLIGHT", _spec("limits.inFlight", "1"), wide=True),
        Column("DISABLE_AFTER", _spec("disableAfter", "120h0m0s"), wide=True),
        _GENERATION,
    ),
    "StreamTenant": (
        _NAME,
        Column("KEYS", _tenant_keys),
        Column("ISSUER", _spec("exchange.issuer")),
        Column("CREATED", _created),
        Column("TTL", _spec("exchange.ttl"), wide=True),
        _GENERATION,
    ),
    "StreamCache": (
        _NAME,
        Column("TENANT", _spec("tenant")),
        Column("NAMESPACE", _spec("namespace", "default")),
        Column("CACHE", _spec("name", "default")),
        Column("MAX_BYTES", _spec("maxBytes", "64MiB")),
        Column("CREATED", _created),
        Column("MAX_ENTRIES", _spec("maxEntries", "1000000"), wide=True),
        Column("MAX_TTL", _spec("maxTTL", "none"), wide=True),
        _GENERATION,
    ),
    "Topic": (
        _NAME,
        Column("TYPE", _spec("type", "log")),
        Column("DURABILITY", _durability),
        Column("TTL_MS", _spec("ttlMs", "none")),
        Column("CAP_RECORDS", _spec("capRecords", "none")),
        Column("CREATED", _created),
        Column("CAP_BYTES", _spec("capBytes", "none"), wide=True),
        Column("DISCARD", _spec("discard", "old"), wide=True),
        Column("DEAD_LETTER", _spec("deadLetter"), wide=True),
        _GENERATION,
    ),
    "TopicRouter": (
        _NAME,
        Column("SOURCE", _spec("source")),
        Column("DEST", _spec("dest")),
        Column("FILTER", _filter),
        Column("FAN_IN", lambda row: "yes" if row["spec"].get("fanIn") else "no"),
        Column("CREATED", _created),
        Column("GUARANTEE", _spec("guarantee", "at_least_once"), wide=True),
        _GENERATION,
    ),
    "FederationSLO": (
        _NAME,
        Column("GROUP", _spec("groupRef")),
        Column("LAG_WARN", _spec("delivery.lagWarnSeconds", "60")),
        Column("LAG_FAIL", _spec("delivery.lagFailSeconds", "180")),
        Column("CREATED", _created),
        _GENERATION,
    ),
    "DynamicConfigSource": (
        _NAME,
        Column("PLUGIN", _spec("pluginRef")),
        Column("TTL", _spec("ttl")),
        Column("CREATED", _created),
        _GENERATION,
    ),
    "DynamicOverridePolicy": (_NAME, Column("SOURCES", _sources), Column("CREATED", _created), _GENERATION),
}
_OTHERS = (
    _NAME,
    Column("KIND", lambda row: row["kind"]),
    Column("APIVERSION", lambda row: row["apiVersion"]),
    Column("CREATED", _created),
    _GENERATION,
)
"""The columns of kinds of other programs."""


_FULL_NAME = Column("NAME", full_name)


def columns_of(kind: str, *, with_kind: bool = False) -> Sequence[Column]:
    """Return the columns of a kind's table; with `with_kind`, names are shown as `kind/name`."""
    columns = _COLUMNS.get(kind, _OTHERS)
    return (_FULL_NAME, *columns[1:]) if with_kind else columns


def has_several(kinds: Sequence[str]) -> bool:
    """Return whether more than one kind is asked for, so that names alone do not say which resource it is."""
    return len(kinds) > 1 or any(kind.lower() == "all" for kind in kinds)


async def named(session: Session, kind: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the resources of these names, each once. Raises NotFound."""
    return [await session.call("resources.get", kind=kind, name=name) for name in dict.fromkeys(names)]


async def listed(session: Session, kinds: Sequence[str], selector: str) -> list[dict[str, Any]]:
    """Return the resources of these kinds, in this order; each once."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for kind in kinds:
        word = "" if kind.lower() == "all" else kind
        answer = await session.call("resources.list", kind=word, selector=selector)
        for row in answer["resources"]:
            rows.setdefault((row["apiVersion"], row["kind"], row["metadata"]["name"]), row)
    return list(rows.values())


def show_tables(session: Session, rows: list[dict[str, Any]], *, with_kind: bool) -> None:
    """Print a table for each of this program's kinds, and one for all others."""
    tables = [(kind, [row for row in rows if row["kind"] == kind]) for kind in _COLUMNS]
    tables.append(("", [row for row in rows if row["kind"] not in _COLUMNS]))
    shown = [(columns_of(kind, with_kind=with_kind), those) for kind, those in tables if those]
    for at, (columns, those) in enumerate(shown):
        if at:
            session.out.line()
        session.out.table(columns, those)
