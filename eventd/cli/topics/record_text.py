"""Shows records on a terminal, and parses records and topic configuration from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from eventd.cli.terminal.output import Column, note, text
from eventd.errors import Invalid

if TYPE_CHECKING:
    from eventd.client import Gap, NewRecord, Record

LONGEST_DATA = 100

_ABOUT = (
    Column("SEQ", text("$seq")),
    Column("TIME", lambda row: show_millis(row["$ts"])),
    Column("NODE", lambda row: row.get("$node") or "-"),
    Column("TAG", lambda row: row.get("$tag") or "-"),
    Column("DATA", lambda row: _cut(_json(row.get("data"))), uncut=lambda row: _json(row.get("data"))),
    Column("META", lambda row: _json(row["meta"]) if "meta" in row else "-", wide=True),
)
RECORDS = _ABOUT
WATCHED = (Column("TOPIC", text("topic")), *_ABOUT)


def show_record(record: Record) -> dict[str, Any]:
    """Return the record under the names of the API, without missing members."""
    about = {"$seq": record.seq, "$ts": record.ts, "$node": record.node, "$tag": record.tag}
    shown = {**about, "data": record.data, "meta": record.meta}
    return {name: value for name, value in shown.items() if name == "data" or value is not None}


def tell_gap(gap: Gap, topic: str) -> None:
    """Report a gap to stderr."""
    if gap.reason == "recreated":
        note(
            f"gap: topic {topic} was recreated or restored, or the given seq is after its end, {gap.head_seq};"
            " its records follow from the first one"
        )
    else:
        lost = gap.last - gap.first + 1
        which = f"record {gap.first} is" if lost == 1 else f"records {gap.first} to {gap.last} are"
        note(f"gap: topic {topic}: {which} lost ({_REASONS.get(gap.reason, gap.reason)})")


_REASONS = {
    "cap": "evicted by the caps of the topic",
    "ttl": "expired by the TTL of the topic",
    "mixed": "evicted by caps and TTL of the topic",
    "source_trim": "evicted from the source before its router copied them",
    "from_seq_too_old": "evicted before this reader started",
}


def show_millis(time: int | None) -> str:
    """Return milliseconds since 1970 as RFC 3339 in UTC; `-` if the time is not set."""
    from federation.event import from_micros

    return "-" if time is None else from_micros(time * 1000).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)  # a Decimal


def _cut(words: str) -> str:
    return words if len(words) <= LONGEST_DATA else f"{words[: LONGEST_DATA - 3]}..."


# --- input ------------------------------------------------------------------------------------------------------------


def read_value(text: str | bytes, where: str) -> Any:
    """Return a JSON text unchanged, as `msgspec.Raw`.

    Raises `Invalid`, which names the place `where`, if it is not valid JSON.
    """
    import msgspec

    try:
        msgspec.json.decode(text)
    except UnicodeError:
        raise Invalid(f"{where} is not valid UTF-8") from None
    except (msgspec.DecodeError, RecursionError) as error:
        why = str(error).removeprefix("JSON is malformed: ")
        raise Invalid(
            f"{where} is not valid JSON: {why}", hint="write JSON, with a text in double quotes: '\"hello\"'"
        ) from None
    return msgspec.Raw(text.encode() if isinstance(text, str) else text)


def read_record(text: str | bytes, where: str) -> NewRecord:
    """Parse a record object: `data`, and optionally `tag`, `node`, `meta`, also as `topic read` prints it.

    The seq, time and topic of a printed record are ignored. Raises `Invalid`, which names its place `where`.
    """
    from eventd.client import NewRecord

    members = _members(text, where)
    data = members.pop("data", None)
    if data is None:
        raise Invalid(f"{where} has no member data", hint='a record is {"data": …, "tag": "…", "node": "…", "meta": …}')
    tag, node = (_text_of(members, name, where) for name in ("tag", "node"))
    meta = members.pop("meta", None)
    unknown = [name for name in members if name not in ("$seq", "$ts", "topic")]
    if unknown:
        raise Invalid(
            f"{where} has a member {unknown[0][:60]!r}, which records do not have", hint="put it into data or meta"
        )
    return NewRecord(data, tag=tag, node=node, meta=meta)


def _members(text: str | bytes, where: str) -> dict[str, Any]:
    """Return the members of a JSON object, each as unparsed JSON. Raises `Invalid`."""
    import msgspec

    read_value(text, where)
    try:
        return dict(msgspec.json.decode(text, type=dict[str, msgspec.Raw]))
    except msgspec.ValidationError:
        hint = "a record is an object; without --records each value is the data of a record"
        raise Invalid(f"{where} is not an object", hint=hint) from None


def _text_of(members: dict[str, Any], name: str, where: str) -> str | None:
    import msgspec

    given = [members.pop(each) for each in (name, f"${name}") if each in members]
    if not given:
        return None
    try:
        return msgspec.json.decode(given[0], type=str | None)
    except msgspec.ValidationError:
        raise Invalid(f"{where}: {name} must be text") from None


# --- configuration --------------------------------------------------------------------------------------------------


def read_settings(words: Iterable[str]) -> dict[str, Any]:
    """Parse `FIELD=VALUE` to fields of a topic's configuration; a field `…_ms` may be a duration such as `30s`.

    Raises `Invalid`, also for an unknown field.
    """
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise Invalid(f"{word[:80]!r} is not FIELD=VALUE", hint="write both, such as ttl_ms=10m or type=queue")
        settings[name] = _setting(name, value)
    check_fields(settings)
    return settings


def check_fields(settings: Mapping[str, Any]) -> None:
    """Raise `Invalid` for an unknown field, which the API would ignore."""
    from eventd.client import Config
    from eventd.text.did_you_mean import did_you_mean

    for name in settings:
        if name not in Config.__struct_fields__:
            fields = Config.__struct_fields__
            hint = did_you_mean(str(name), fields) or f"the fields are {', '.join(fields)}"
            raise Invalid(f"a topic has no field {str(name)[:60]!r}", hint=hint)


def _setting(name: str, value: str) -> Any:
    from eventd.text.duration import BadDuration, parse_duration

    if name.endswith("_ms") and not value.isdigit() and value != "null":
        try:
            return parse_duration(value) // 1000
        except BadDuration as error:
            raise Invalid(f"{name}: {error.message}", hint="or write milliseconds as a whole number") from None
    try:
        return json.loads(value)
    except ValueError:
        return value
