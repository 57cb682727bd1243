"""The dynamic configuration: parts, their status, and the effective configuration."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from pydantic import FailFast, Field

from eventd.api.admin.resources.merge_text import MergeText, write_merge
from eventd.api.admin.resources.resources import Source, Sources
from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import MAX_PAGE_SIZE, PAGE_SIZE, cut_page
from eventd.dynamic.effective import Snapshot
from eventd.dynamic.merge import Effective
from eventd.dynamic.part import part_name
from eventd.errors import Invalid, NotFound
from eventd.log.core.head import lock_head
from eventd.resources.reading.documents import ROUTER
from eventd.resources.validation.check import check
from eventd.store.engine.database import Connection, Database
from eventd.store.parts.claims import ResourceKey
from eventd.store.parts.part import StoredPart
from eventd.store.parts.parts import delete_part
from eventd.store.parts.reading import PartPlace, read_part_page, read_parts, read_sources
from eventd.store.rows.registry import StoredResource, read_resources
from eventd.text.did_you_mean import did_you_mean

_PLACE = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")
ACTIVE, EXPIRED, SET_ASIDE = "active", "expired", "set-aside"
_UNLESS = Field(
    default="", description="The `state` of an earlier answer: if it is still current, the answer is only `unchanged`."
)


class ListParts(Params):
    """Which parts to list."""

    owner: str = Field(default="", description="Only parts of this owner, such as `EventSubscription/NAME`.")
    limit: int | None = Field(
        default=None, ge=1, le=MAX_PAGE_SIZE, description="Maximum number of parts of the page; all if it is missing."
    )
    after: str = Field(default="", max_length=60, description="Continue after this token, the `next` of a page.")
    unless: str = _UNLESS


async def list_parts(services: Services, params: ListParts) -> dict[str, Any]:
    place = _read_place(params.after)
    snapshot = await services.effective.current()
    paged = f"{params.after} {params.limit}" if params.limit or params.after else ""
    state = _state(snapshot, f"{params.owner} {paged}" if paged else params.owner)
    if params.unless == state:
        return _unchanged(state)
    found, following = await services.database.read(_read_page, params, place)
    reasons = dict(snapshot.effective.set_aside)
    return {
        "parts": [_line(part, _status_of(part, snapshot.effective, reasons)) for part in found],
        "next": following,
        "state": state,
    }


def _read_page(conn: Connection, params: ListParts, place: PartPlace | None) -> tuple[Sequence[StoredPart], str | None]:
    if params.limit is None and place is None:
        return read_parts(conn, owner=params.owner), None
    limit = params.limit or PAGE_SIZE
    return cut_page(
        read_part_page(conn, owner=params.owner, place=place, limit=limit + 1),
        limit,
        lambda part: f"{part.observed_at}:{part.id}",
    )


def _read_place(token: str) -> PartPlace | None:
    """Return the place that a token names; None for an empty one. Raises `Invalid`."""
    if not token:
        return None
    if not (found := _PLACE.fullmatch(token)):
        raise Invalid(f"{token!r} is not a token of this list", hint="send the `next` of the last page unchanged")
    return PartPlace(int(found[1]), int(found[2]))


def _state(snapshot: Snapshot, asked: str) -> str:
    """Return the `state` of an answer: the state of the snapshot and, if parameters were `asked`, a digest of
    these."""
    return f"{snapshot.state}.{hashlib.sha256(asked.encode()).hexdigest()[:16]}" if asked else snapshot.state


def _unchanged(state: str) -> dict[str, Any]:
    return {"unchanged": True, "state": state}


PartStatus = tuple[str, str]
"""The status of a part, and the reason if that is `set-aside`; otherwise empty."""


def _status_of(part: StoredPart, effective: Effective, reasons: Mapping[str, str]) -> PartStatus:
    if part.source in reasons:
        return SET_ASIDE, reasons[part.source]
    return (ACTIVE if part.source in effective.active_sources else EXPIRED), ""


def _line(part: StoredPart, shown: PartStatus) -> dict[str, Any]:
    status, reason = shown
    return {
        "source": part.source,
        "generation": part.generation,
        "status": status,
        "resources": len(part.claims) or len(part.resources) * bool(part.problem),
        "directives": len(part.directives),
        "actionPlans": len(part.action_plans),
        "expiresAt": show_time(part.ends_at),
        "plugin": part.plugin,
        "group": part.group,
        "reason": reason,
    }


class OnePart(Params):
    """The part to show or delete, or the owner whose parts to show."""

    source: str = Field(description="The source of the part, such as `EventSubscription/NAME/8b5cc4df7eec7d32`.")


async def describe(services: Services, params: OnePart) -> dict[str, Any]:
    effective = (await services.effective.current()).effective
    found = await services.database.read(_find, params.source)
    reasons = dict(effective.set_aside)
    return {"parts": [_show(part, _status_of(part, effective, reasons)) for part in found]}


def _find(conn: Connection, source: str) -> list[StoredPart]:
    """Return the part with this source or, if there is none, all parts of the owner `source` (`Kind/NAME`)."""
    return read_parts(conn, source=source) or read_parts(conn, owner=source)


def _show(part: StoredPart, shown: PartStatus) -> dict[str, Any]:
    status, reason = shown
    given = sorted(part.claims.items())
    return {
        "id": part.id,
        "name": part_name(part.source, part.generation),
        "source": part.source,
        "generation": part.generation,
        "status": status,
        "storedStatus": ACTIVE,
        "group": part.group,
        "plugin": part.plugin,
        "observedAt": show_time(part.observed_at),
        "expiresAt": show_time(part.expires_at),
        "endsAt": show_time(part.ends_at),
        "digest": part.digest,
        "eventIds": list(part.event_ids),
        "resources": list(part.resources),
        "gives": [{**_identity(key), "since": show_time(h.since), "until": show_time(h.ends_at)} for key, h in given],
        "directives": list(part.directives),
        **({"actionPlans": list(part.action_plans)} if part.action_plans else {}),
        **({"error": reason or part.problem} if reason or part.problem else {}),
        "createdAt": show_time(part.created_at),
        "updatedAt": show_time(part.updated_at),
    }


def _identity(key: ResourceKey) -> dict[str, str]:
    return {"apiVersion": key.api_version, "kind": key.kind, "name": key.name}


async def delete(services: Services, params: OnePart) -> dict[str, Any]:
    gave = await services.database.write(_delete_now, params.source)
    services.effective.changed()
    return {"source": params.source, "gave": [_identity(key) for key in gave]}


def _delete_now(conn: Connection, source: str) -> list[ResourceKey]:
    """Delete a part; return the identities of the resources that it contributed. Raises NotFound."""
    lock_head(conn)
    found = read_parts(conn, source=source)
    if not found:
        sources = read_sources(conn)
        hint = did_you_mean(source, sources) or ("routerctl dynamic list shows them" if sources else "")
        raise NotFound(f"no part has the source {source}", hint=hint)
    delete_part(conn, source)
    return sorted(found[0].claims)


class MergeParams(Params):
    """The resources that the live parts are merged into."""

    sources: Annotated[list[Source], FailFast()] = Field(
        default=[], description="Merge into these resources instead of the declared ones."
    )
    unless: str = _UNLESS


async def render(services: Services, params: MergeParams) -> dict[str, Any]:
    effective, state = await _effective(services, params)
    if effective is None:
        return _unchanged(state)
    resources = [dict(entry.resource) for entry in effective.entries]
    api_version, kind = ROUTER
    router = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "effective"},
        "spec": {"resources": resources},
    }
    return {"router": router, "state": state}


class DiffParams(MergeParams):
    """The resources that the live parts are merged into, and how to show what changes."""

    show_diff: bool = Field(
        default=False,
        description="Also show the changes as a unified diff of at most 100 resources and 64 kB, and, without"
        " `sources`, the generation that is in effect.",
    )


async def diff(services: Services, params: DiffParams) -> dict[str, Any]:
    effective, state = await _effective(services, params)
    if effective is None:
        return _unchanged(state)
    shown = {**show_merge(effective), "state": state}
    if not params.show_diff:
        return shown
    if params.sources:
        stored = await asyncio.to_thread(_read_startup, params.sources, services.clock.now())
        text, whole = await asyncio.to_thread(write_merge, effective, stored)
    else:
        shown |= about(await services.effective.current())
        text, whole = await _text_of_declared(services, effective)
    return {**shown, "diff": text, "diffIsWhole": whole}


_texts: WeakKeyDictionary[Database, tuple[Effective, MergeText]] = WeakKeyDictionary()
"""A cache of the last diff of each database, with its configuration: an open page requests the diff each second."""


async def _text_of_declared(services: Services, effective: Effective) -> MergeText:
    known = _texts.get(services.database)
    if known is not None and known[0] is effective:
        return known[1]
    stored = await services.database.read(read_resources)
    text = await asyncio.to_thread(write_merge, effective, stored)
    _texts[services.database] = (effective, text)
    return text


def about(snapshot: Snapshot) -> dict[str, Any]:
    """Return the generation of a configuration as JSON."""
    return {
        "generation": snapshot.generation,
        "etag": snapshot.etag,
        "changedAt": show_time(snapshot.changed_at),
    }


async def _effective(services: Services, params: MergeParams) -> tuple[Effective | None, str]:
    """Return the requested effective configuration (None if the caller already has it), and its `state`."""
    snapshot = await services.effective.current()
    if not params.sources:
        return None if params.unless == snapshot.state else snapshot.effective, snapshot.state
    state = await asyncio.to_thread(lambda: _state(snapshot, params.model_dump_json(include={"sources"})))
    if params.unless == state:
        return None, state
    stored = await asyncio.to_thread(_read_startup, params.sources, services.clock.now())
    return await services.effective.with_startup(stored), state


def _read_startup(sources: list[Source], now: int) -> list[StoredResource]:
    """Return the resources of the sources as if they were declared. Raises InvalidResources."""
    declarations = check(Sources(sources=sources).load(), []).accepted()
    return [
        StoredResource(*declared.identity, declared.annotations, declared.canonical(), 1, now, now, declared.labels)
        for declared in declarations
    ]


def show_merge(effective: Effective) -> dict[str, Any]:
    """Return as JSON how the parts change the declared resources, and the status of each part."""
    return {
        "suppressed": [
            {
                "target": _identity(one.target),
                "maskedBy": one.masked_by,
                "maskedUntil": show_time(one.masked_until),
                **({"reason": one.reason} if one.reason else {}),
            }
            for one in effective.suppressed
        ],
        "addedResources": [
            {"source": one.source, "generation": one.generation, **_identity(one.key)} for one in effective.added
        ],
        "activeParts": list(effective.active),
        "expiredParts": list(effective.expired),
        "setAside": [{"source": source, "reason": reason} for source, reason in effective.set_aside],
        "warnings": list(effective.warnings),
    }


def identities(keys: Iterable[ResourceKey]) -> list[dict[str, str]]:
    """Return the identities of resources as JSON: apiVersion, kind and name of each."""
    return [_identity(key) for key in keys]
