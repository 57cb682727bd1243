"""The configuration of callbacks, with every default filled in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eventd.resources.group_configuration import topic_of
from eventd.resources.kinds.event_callback import EventCallbackSpec
from eventd.resources.kinds.registry import EVENT_CALLBACK
from eventd.resources.validation.resource import specs_of
from eventd.runtime.backoff import Backoff
from eventd.store.rows.registry import StoredResource
from eventd.text.duration import SECOND
from eventd.tls.files import SYSTEM_CAS, ClientTlsConfig
from federation.selector import Selector

PATIENCE = 3600.0
"""The longest pause in seconds that an endpoint may ask for with `Retry-After`."""


@dataclass(frozen=True, slots=True)
class CallbackKeyConfig:
    """A key of a callback, in one of the states of `KeyState`."""

    id: str
    state: str
    secret_file: str


@dataclass(frozen=True, slots=True)
class CallbackConfig:
    """An endpoint, and which records of which topic are pushed to it.

    `topic` is `group:NAME` for the events of a group, and `group` its name; for a topic of records, `group` is empty,
    and `selector` tests tag and node. Without `from_earliest`, a new callback begins at the end of the log, or, if
    its topic is created only later, at the beginning of the topic.

    `timeout` and `connect_timeout` are in seconds, `window`, `disable_after` and `hold` in microseconds. `per_second`
    None: no limit; `disable_after` None: never paused by the node; `hold` None: retention keeps nothing for it. Files
    are an absolute path, `credential:NAME`, or empty.
    """

    name: str
    group: str
    topic: str
    selector: Selector
    url: str
    format: str
    from_earliest: bool
    max_events: int
    window: int
    max_bytes: int
    keys: tuple[CallbackKeyConfig, ...]
    username: str
    password_file: str
    bearer_file: str
    headers: tuple[tuple[str, str], ...]
    timeout: float
    connect_timeout: float
    per_second: int | None
    in_flight: int
    backoff: Backoff
    isolate_after: int
    disable_after: int | None
    hold: int | None
    tls: ClientTlsConfig = SYSTEM_CAS


def callbacks(stored: Iterable[StoredResource]) -> dict[str, CallbackConfig]:
    """Return the callbacks by name. Raises Invalid for a row this program cannot read."""
    return {name: _callback(name, spec) for name, spec in specs_of(stored, EVENT_CALLBACK, EventCallbackSpec).items()}


def declared_at(stored: Iterable[StoredResource]) -> dict[str, int]:
    """Return when each callback was declared as it is now, in microseconds, by name."""
    return {row.name: row.updated_at for row in stored if row.kind == EVENT_CALLBACK.name}


def _callback(name: str, spec: EventCallbackSpec) -> CallbackConfig:
    source, match, retry, tls = spec.source, spec.match, spec.retry, spec.tls
    return CallbackConfig(
        name=name,
        group=source.group_ref,
        topic=topic_of(source.group_ref) if source.group_ref else source.topic,
        selector=Selector.of(
            types=match.types,
            subject_prefixes=match.subject_prefixes,
            sources=match.source_nodes,
            payload=match.payload,
        ),
        url=spec.url,
        format=spec.format,
        from_earliest=spec.start == "earliest",
        max_events=spec.most_events,
        window=spec.batch.window,
        max_bytes=spec.batch.max_bytes,
        keys=tuple(CallbackKeyConfig(key.id, key.state, key.secret_file) for key in spec.signing.keys),
        username=spec.auth.username,
        password_file=spec.auth.password_file,
        bearer_file=spec.auth.bearer_file,
        headers=tuple(spec.headers.items()),
        timeout=spec.limits.timeout / SECOND,
        connect_timeout=spec.limits.connect_timeout / SECOND,
        per_second=spec.limits.per_second or None,
        in_flight=spec.limits.in_flight,
        backoff=Backoff(base=retry.base_backoff / SECOND, cap=retry.max_backoff / SECOND, patience=PATIENCE),
        isolate_after=retry.isolate_after,
        disable_after=spec.disable_after or None,
        hold=spec.hold or None,
        tls=ClientTlsConfig(tls.ca_file, tls.client_cert_file, tls.client_key_file),
    )
