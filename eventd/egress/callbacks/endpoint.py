"""One request to a callback's endpoint, and what its answer means.

Any 2xx acknowledges the whole message. Otherwise the endpoint is unavailable (no answer, 408, 425, 429, 5xx but 500),
it refuses the callback as such (3xx, other 4xx: a wrong URL or credential), it no longer exists (410), or it may refuse
the content (400, 413, 422, 500), which has to be proven before an event is given up. Or this node cannot send, because
a file of secrets or certificates cannot be used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import eventd
from eventd.egress.callbacks.masking import NO_SECRETS, AnswerMask
from eventd.egress.callbacks.rate import RateLimiter
from eventd.egress.loop.sink import Blocked, LinkError, LinkUnavailable, plain
from eventd.egress.transport.retry_after import retry_after
from eventd.egress.transport.transport import MAX_ANSWER, Transport
from eventd.errors import SecretUnreadable
from eventd.net.address_rules import AddressRules
from eventd.resources.callback_configuration import CallbackConfig
from eventd.runtime.clock import SECOND, Clock
from eventd.store.rows.callback_attempts import CallbackAttempt
from eventd.text.duration import format_duration
from eventd.tracing import tracing
from eventd.tracing.contexts import NO_TRACE, trace_headers
from federation import webhooks
from federation.keys import Key

USER_AGENT: Final = f"routerd-eventd/{eventd.__version__}"
REPAIR: Final = "routerd-repair"
"""Header of messages that an operator sends again."""

SECRET_UNREADABLE: Final = SecretUnreadable.code
"""The reason of a callback whose secrets cannot be read."""

_UNAVAILABLE = frozenset({408, 425, 429})
_CONTENT = frozenset({400, 413, 422, 500})
_GONE = 410

_NO_MASK = AnswerMask(NO_SECRETS, "")


class Meaning(Enum):
    """What the outcome of a request means for the message."""

    DELIVERED = "delivered"
    UNAVAILABLE = "unavailable"
    BLOCKED = "blocked"
    REFUSED = "refused"  # the content, perhaps
    GONE = "gone"  # the endpoint no longer exists
    FAILED = "failed"  # this node cannot send


class SendOutcome(NamedTuple):
    """The outcome of one request.

    `status` is 0 without an answer. `duration` in microseconds. `reason` is empty if the message was delivered,
    otherwise a slug. `headers` are those of the answer, and `answer` is the beginning of its body; in these and in
    `detail`, secrets and echoes of the message are masked. `address` is the endpoint's, empty without a connection;
    `retry_after` is in seconds.
    """

    meaning: Meaning
    status: int
    reason: str
    detail: str
    started_at: int
    duration: int
    address: str
    key_ids: str
    answer: str
    retry_after: float | None = None
    headers: Mapping[str, str] = {}

    def error(self) -> LinkError:
        """Return the error by which the consumer waits for the next attempt."""
        kinds = {Meaning.BLOCKED: Blocked, Meaning.GONE: Blocked, Meaning.FAILED: LinkError}
        kind = kinds.get(self.meaning, LinkUnavailable)
        return kind(self.reason, self.detail, retry_after=self.retry_after)

    def attempt(self, cursor: str, id: str, after: int, upto: int) -> CallbackAttempt:
        """Return the row of this outcome for a message over `(after, upto]`, without the fields that its records
        determine."""
        return CallbackAttempt(
            cursor=cursor,
            message_id=id,
            after=after,
            upto=upto,
            events=0,
            answers=int(self.meaning is Meaning.REFUSED),
            status=self.status,
            reason=self.reason,
            detail=self.detail,
            started_at=self.started_at,
            first_at=self.started_at,
            duration=self.duration,
            address=self.address,
            key_ids=self.key_ids,
            answer=self.answer,
        )


class CallbackSecrets(Protocol):
    """Interface of a callback's secrets: keys that sign, and the value of the header `Authorization`, if any."""

    @property
    def keys(self) -> Sequence[Key]: ...

    @property
    def authorization(self) -> str | None: ...


ReadSecrets = Callable[[], Awaitable[CallbackSecrets]]
"""Returns the present secrets. Raises `SecretUnreadable`."""


class CallbackEndpoint:
    """The endpoint of one callback. `secrets` are read for each request; `rate` limits the requests."""

    def __init__(
        self,
        config: CallbackConfig,
        transport: Transport,
        rules: AddressRules,
        secrets: ReadSecrets,
        clock: Clock,
        rate: RateLimiter,
    ) -> None:
        self._rate = rate
        self._was_held = False
        self._config = config
        self._transport = transport
        self._rules = rules
        self._secrets = secrets
        self._clock = clock
        self._mask = _NO_MASK
        self._masked: CallbackSecrets | None = None  # the secrets of the mask

    async def require_secrets(self) -> None:
        """Read the present secrets. Raises `LinkError` if they cannot be read."""
        try:
            await self._secrets()
        except SecretUnreadable as error:
            raise LinkError(SECRET_UNREADABLE, str(error)) from None

    async def send(
        self,
        id: str,
        body: bytes,
        *,
        repair: bool = False,
        keep_headers: bool = False,
        covers: tuple[int, int] = (0, 0),
    ) -> SendOutcome:
        """Send a message once, and return the outcome, without the answer's headers unless `keep_headers`.

        `covers` are the positions `(after, upto]` of its records, for the links of its span.
        """
        if not tracing.on:
            return await self._send(id, body, NO_TRACE, repair=repair, keep_headers=keep_headers)
        links = [context for _, context in tracing.sampled.between(*covers)]
        about = {"eventd.callback": self._config.name, "eventd.message": id}
        with tracing.span("attempt", "client", links=links, attributes=about) as span:
            trace = trace_headers(span.context)
            outcome = await self._send(id, body, trace, repair=repair, keep_headers=keep_headers)
            if outcome.status:
                span.set("http.response.status_code", outcome.status)
            if outcome.reason:
                span.fail(outcome.reason)
            return outcome

    async def _send(
        self, id: str, body: bytes, trace: Mapping[str, str], *, repair: bool, keep_headers: bool
    ) -> SendOutcome:
        self._was_held = await self._rate.wait() or self._was_held
        config, started_at, begun = self._config, self._clock.now(), self._clock.monotonic()
        key_ids = address = ""
        mask = _NO_MASK
        try:
            secrets = await self._secrets()
            mask = self._mask_of(secrets)
            key_ids = " ".join(key.id for key in secrets.keys)
            headers = {**trace, **self._headers(secrets, id, body, started_at // SECOND, repair=repair)}
            answer = await self._transport.post(
                config.url,
                body,
                headers,
                seconds=config.timeout,
                connect_seconds=config.connect_timeout,
                cut=True,
                tls=config.tls,
                rules=self._rules,
                bounded=True,
            )
        except SecretUnreadable as error:
            meaning, reason, detail = Meaning.FAILED, SECRET_UNREADABLE, str(error)
        except LinkError as error:
            meaning, reason, address = _meaning_of(error), error.reason, error.address
            detail = mask.apply(error.detail, body)
        else:
            duration = self._spent(begun)
            is_cut = len(answer.body) >= MAX_ANSWER
            words = plain(mask.apply(answer.body.decode("utf-8", "replace"), body, is_cut=is_cut))
            meaning = meaning_of(answer.status)
            delivered = meaning is Meaning.DELIVERED
            pause = None if delivered else retry_after(answer, self._clock.now())
            return SendOutcome(
                meaning,
                answer.status,
                "" if delivered else meaning.value if meaning is Meaning.GONE else f"http_{answer.status}",
                ""
                if delivered
                else _detail_of(answer.status, words, mask.apply(answer.headers.get("location", ""), body), pause),
                started_at,
                duration,
                answer.address,
                key_ids,
                words,
                pause,
                {name: plain(mask.apply(text, body)) for name, text in answer.headers.items()} if keep_headers else {},
            )
        return SendOutcome(meaning, 0, reason, detail, started_at, self._spent(begun), address, key_ids, "")

    def _mask_of(self, secrets: CallbackSecrets) -> AnswerMask:
        if self._masked is not secrets:
            self._mask, self._masked = AnswerMask(secrets, self._config.url), secrets
        return self._mask

    def take_held(self) -> bool:
        """Return whether requests have waited for their turn since the last call."""
        was_held, self._was_held = self._was_held, False
        return was_held

    def _spent(self, begun: float) -> int:
        return int((self._clock.monotonic() - begun) * SECOND)

    def _headers(
        self, secrets: CallbackSecrets, id: str, body: bytes, timestamp: int, *, repair: bool
    ) -> dict[str, str]:
        headers = {} if secrets.authorization is None else {"Authorization": secrets.authorization}
        headers |= {"Content-Type": "application/json", "User-Agent": USER_AGENT, "Accept": "*/*"}
        headers |= {webhooks.ID: id, webhooks.TIMESTAMP: str(timestamp)}
        if signature := webhooks.sign(secrets.keys, id, timestamp, body):
            headers[webhooks.SIGNATURE] = signature
        if repair:
            headers[REPAIR] = "1"
        return headers | dict(self._config.headers)


def meaning_of(status: int) -> Meaning:
    """Return what an HTTP status means."""
    if 200 <= status <= 299:
        return Meaning.DELIVERED
    if status in _CONTENT:
        return Meaning.REFUSED
    if status == _GONE:
        return Meaning.GONE
    if status in _UNAVAILABLE or status >= 500:
        return Meaning.UNAVAILABLE
    return Meaning.BLOCKED


def _detail_of(status: int, words: str, location: str, pause: float | None) -> str:
    """Return the sentence about an answer that was not 2xx; `words` is the beginning of its body.

    `pause`: the seconds in `Retry-After`.
    """
    detail = f"the endpoint answered {status}"
    if pause is not None:
        detail = f"{detail} and asked for a pause of {format_duration(int(pause) * SECOND)}"
    target = _shown_target(location) if 300 <= status <= 399 else ""
    if target:
        return f"{detail}, a redirect to {target}, which is not followed"
    return f"{detail}: {words}" if words else detail


def _shown_target(location: str) -> str:
    """Return the URL that a redirect leads to, without user, query and fragment, which may hold secrets."""
    try:
        parts = urlsplit(plain(location))
    except ValueError:
        return ""
    host = parts.netloc.rpartition("@")[2]
    return f"{f'{parts.scheme}:' if parts.scheme else ''}{f'//{host}' if host else ''}{parts.path}"


def _meaning_of(error: LinkError) -> Meaning:
    if isinstance(error, LinkUnavailable):
        return Meaning.UNAVAILABLE
    return Meaning.BLOCKED if isinstance(error, Blocked) else Meaning.FAILED
