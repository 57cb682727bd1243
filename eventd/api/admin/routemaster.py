"""The Routemaster surface, for operators: its topics, its subscribers, its tokens. No answer shows a `uuid`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic import Field, ValidationError

from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.errors import Invalid
from eventd.log.routemaster.backlog import SubscriberState, read_states
from eventd.log.routemaster.errors import RmTopicNotFound, TokenNotFound
from eventd.log.routemaster.names import is_token, is_topic
from eventd.log.routemaster.subscriptions import ClaimTopic
from eventd.log.routemaster.tokens import (
    CreateToken,
    DeleteToken,
    NewToken,
    RotateToken,
    SignSubscriber,
    find_identity,
    new_token,
)
from eventd.resources.kinds.event_callback import MOST_KEYS, CallbackKey
from eventd.store.engine.database import Connection
from eventd.store.rows.routemaster import RmTopicRow, SigningKey, list_rm_topics, read_subscribers
from eventd.store.rows.tokens import TokenRow, read_tokens
from eventd.text.duration import BadDuration, parse_duration

MOST_LABEL = 30
"""Maximum characters of a token's name, which is also a part of the token."""


class ListRmTopics(Params):
    """No parameters."""


async def list_topics(services: Services, params: ListRmTopics) -> dict[str, Any]:
    topics, subscribers = await services.database.read(_read_topics)
    return {"topics": [_show_topic(row, subscribers[row.name]) for row in topics]}


def _read_topics(conn: Connection) -> tuple[list[RmTopicRow], Counter[str]]:
    return list_rm_topics(conn), Counter(topic for row in read_subscribers(conn) for topic in row.topics)


def _show_topic(row: RmTopicRow, subscribers: int) -> dict[str, Any]:
    return {
        "name": row.name,
        "publisher": row.publisher or None,
        "events": row.events,
        "subscribers": subscribers,
        "createdAt": show_time(row.created_at),
    }


class ClaimRmTopic(Params):
    """The new publisher of a topic, or the release of its claim."""

    name: str = Field(description="The topic of the surface.")
    to: str = Field(default="", description="The new publisher: the name of a client's token, or its handle.")
    release: bool = Field(default=False, description="Release the claim: the next publisher claims the topic.")


async def claim(services: Services, params: ClaimRmTopic) -> dict[str, Any]:
    if bool(params.to) == params.release:
        raise Invalid("to: name the new publisher, or set release, and not both")
    if not is_topic(params.name):
        raise RmTopicNotFound(params.name)
    publisher = await services.database.read(find_identity, params.to) if params.to else ""
    row = await services.log.submit(ClaimTopic(params.name, publisher))
    return {"name": row.name, "publisher": row.publisher or None, "events": row.events}


class ListSubscribers(Params):
    """No parameters."""


async def list_subscribers(services: Services, params: ListSubscribers) -> dict[str, Any]:
    return {"subscribers": [_show_subscriber(state) for state in await services.database.read(read_states)]}


def _show_subscriber(state: SubscriberState) -> dict[str, Any]:
    row, queued = state
    return {
        "subscriber": row.handle,
        "callback": row.shown_callback,
        "uuid": "set" if row.uuid else "not set",
        "keyIds": [key.id for key in row.keys],
        "timeoutMs": row.timeout_ms,
        "maxEvents": row.max_events,
        "topics": row.topics,
        "sent": row.sent,
        "queued": queued.queued,
        "oldestAt": show_time(queued.oldest),
        "cursor": row.cursor,
        "createdAt": show_time(row.created_at),
        "updatedAt": show_time(row.updated_at),
    }


class SignRequests(Params):
    """The keys that sign the requests to a subscriber."""

    client: str = Field(description="The name of the client's token, or its handle.")
    keys: list[str] = Field(
        default=[],
        max_length=MOST_KEYS,
        description="The keys, each as `ID=FILE`, the file as for an EventCallback; none: requests are not signed.",
    )


async def sign(services: Services, params: SignRequests) -> dict[str, Any]:
    keys = [_signing_key(at, text) for at, text in enumerate(params.keys)]
    if len({key.id for key in keys}) < len(keys):
        raise Invalid("keys: two keys have the same id", hint="give each key its own id")
    identity = await services.database.read(find_identity, params.client)
    await services.log.submit(SignSubscriber(identity, keys))
    await services.take_over()
    return {"subscriber": identity, "keyIds": [key.id for key in keys]}


def _signing_key(at: int, text: str) -> SigningKey:
    """Return the key of one entry. No message shows the entry: it could be the secret itself."""
    id, _, file = text.partition("=")
    try:
        key = CallbackKey.model_validate({"id": id, "secretFile": file})
    except ValidationError:
        hint = "write ID=FILE, such as b-2026=/etc/routerd-eventd/b-2026.key or b-2026=credential:b-2026"
        raise Invalid(f"keys[{at}]: must be the id of a key and the absolute path of its secret", hint=hint) from None
    if not key.secret_file:
        raise Invalid(f"keys[{at}]: names no file", hint="create a secret: routerctl callback secret new")
    return SigningKey(key.id, key.secret_file)


class CreateRmToken(Params):
    """A token to create."""

    name: str = Field(description="The name of the token: 1 to 30 of a-z, 0-9, `:`, `_` and `-`; need not be unique.")


async def create_token(services: Services, params: CreateRmToken) -> dict[str, Any]:
    if not is_token(params.name) or len(params.name) > MOST_LABEL:
        hint = "use 1 to 30 lower-case letters, digits and any of : _ -"
        raise Invalid(f"name: {params.name[:80]!r} cannot be the name of a token", hint=hint)
    token = new_token(params.name, services.log.chance)
    row = await services.log.submit(CreateToken(NewToken(params.name, token)))
    await services.take_over()
    return {**_show_token(row, services.clock.now()), "token": token}


class ListTokens(Params):
    """No parameters."""


async def list_tokens(services: Services, params: ListTokens) -> dict[str, Any]:
    now = services.clock.now()
    return {"tokens": [_show_token(row, now) for row in await services.database.read(read_tokens)]}


class RotateRmToken(Params):
    """A client whose token is replaced."""

    handle: str = Field(description="The handle of a token of the client.")
    grace: str = Field(default="1h", description="How long its present tokens stay valid; `0s`: they end at once.")


async def rotate_token(services: Services, params: RotateRmToken) -> dict[str, Any]:
    try:
        grace = parse_duration(params.grace)
    except BadDuration as error:
        raise Invalid(f"grace: {error.message}", hint=error.hint) from None
    if grace < 0:
        raise Invalid(f"grace: {params.grace[:80]!r} must not be negative")
    found = [row for row in await services.database.read(read_tokens) if row.handle == params.handle]
    if not found:
        raise TokenNotFound
    token = new_token(found[0].label[:MOST_LABEL], services.log.chance)
    row = await services.log.submit(RotateToken(params.handle, token, grace))
    await services.take_over()
    return {**_show_token(row, services.clock.now()), "token": token}


class RevokeRmToken(Params):
    """A token to delete."""

    handle: str = Field(description="The handle of the token, or the token itself.")


async def revoke_token(services: Services, params: RevokeRmToken) -> dict[str, Any]:
    row = await services.log.submit(DeleteToken(params.handle))
    if row is None:
        raise TokenNotFound
    await services.take_over()
    return {**_show_token(row, services.clock.now()), "state": "revoked"}


def _show_token(row: TokenRow, now: int) -> dict[str, Any]:
    return {
        "handle": row.handle,
        "name": row.label,
        "identity": row.identity,
        "state": "active" if row.is_valid(now) else "expired",
        "createdAt": show_time(row.created_at),
        "expiresAt": show_time(row.expires_at),
    }
