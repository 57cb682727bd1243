"""The documents behind the urls of a drain's events: fetched when they are needed, and kept until an event changes
them."""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from eventd.errors import EventdError, Forbidden, Invalid, NotFound, TooLarge, Unavailable
from eventd.runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

MAX_REDIRECTS: Final = 5
MAX_CONNECTIONS: Final = 16
_REDIRECTS = (301, 302, 303, 307, 308)
_MISSING = (404, 410)
_REFUSED = (401, 403)
_NOT_NOW = (408, 425, 429)


class Document(NamedTuple):
    """A fetched document. `url`: where it was found, after redirects."""

    url: str
    content_type: str
    body: bytes


class _Entry(NamedTuple):
    document: Document
    size: int
    until: float


class _Fetch:
    """A fetch under way; `outdated` once an event has changed the document meanwhile."""

    def __init__(self) -> None:
        self.outdated = False


class DocumentCache:
    """Fetches documents with GET from listed hosts, and keeps the ones used last: at most `entries`, and `size` bytes.

    Urls come from publishers, who could make a program fetch from its own network, or send its credentials to
    them. So documents are fetched only from `hosts`, over https unless `allow_plain`, and a redirect is followed
    only within a host unless `other_hosts`, and then only to a listed one.
    """

    def __init__(
        self,
        hosts: Mapping[str, Mapping[str, str]],
        *,
        entries: int = 10_000,
        size: int = 64 << 20,
        max_document: int = 1 << 20,
        max_age: float = 3600.0,
        timeout: float = 10.0,
        other_hosts: bool = False,
        allow_plain: bool = False,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`hosts` maps each `HOST` or `HOST:PORT` to the headers that are sent to it, such as `Authorization`.

        `max_document` is in bytes. `max_age` is how many seconds a document is kept even if no event arrives, because a
        bus may lose events; `timeout` how many a fetch may take. `tls` replaces the system's CAs.
        """
        self._hosts = {host.lower(): dict(headers) for host, headers in hosts.items()}
        self._entries, self._size, self._max_document = entries, size, max_document
        self._max_age, self._timeout = max_age, timeout
        self._other_hosts, self._allow_plain, self._tls = other_hosts, allow_plain, tls
        self._clock = clock or SystemClock()
        self._kept: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0
        self._fetches: dict[str, list[_Fetch]] = {}
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def used(self) -> int:
        """Bytes of the documents that are kept, and of their urls."""
        return self._bytes

    async def get(self, url: str) -> Document:
        """Return the document at `url`, kept or fetched.

        Raises `NotFound`; `Forbidden` if its host is not listed, the connection is not TLS, a redirect leads elsewhere,
        or the host refuses the request; `TooLarge`; `Unavailable` if a later attempt may succeed; `Invalid` for another
        url, and `EventdError` for any other answer.
        """
        kept = self._kept.get(url)
        if kept is not None and self._clock.monotonic() < kept.until:
            self._kept.move_to_end(url)
            return kept.document
        fetch = _Fetch()
        self._fetches.setdefault(url, []).append(fetch)
        try:
            document = await self._fetch(url)
        finally:
            self._end(url, fetch)
        # An event that arrived during the fetch may tell of a change that the answer does not have yet.
        if not fetch.outdated:
            self._keep(url, document)
        return document

    def invalidate(self, url: str) -> None:
        """Drop the document at `url`, because an event says that it was created, updated or deleted."""
        self._drop(url)
        for fetch in self._fetches.get(url, ()):
            fetch.outdated = True

    async def close(self) -> None:
        """Close the connections; a later `get` opens new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _end(self, url: str, fetch: _Fetch) -> None:
        self._fetches[url].remove(fetch)
        if not self._fetches[url]:
            del self._fetches[url]

    def _drop(self, url: str) -> None:
        if (kept := self._kept.pop(url, None)) is not None:
            self._bytes -= kept.size

    def _keep(self, url: str, document: Document) -> None:
        self._drop(url)
        size = len(document.body) + len(document.url) + len(url)
        self._kept[url] = _Entry(document, size, self._clock.monotonic() + self._max_age)
        self._bytes += size
        while len(self._kept) > self._entries or self._bytes > self._size:
            self._drop(next(iter(self._kept)))

    async def _fetch(self, url: str) -> Document:
        from aiohttp import ClientError

        place = self._check(_parse(url))
        try:
            async with asyncio.timeout(self._timeout):
                return await self._follow(place)
        except TimeoutError:
            raise Unavailable(f"{_shown(place)} was not read within {self._timeout:g} s") from None
        except (ClientError, OSError) as error:
            raise Unavailable(f"{_shown(place)} cannot be read: {error}") from None

    async def _follow(self, place: URL) -> Document:
        begin = place
        for _ in range(1 + MAX_REDIRECTS):
            headers = self._hosts[_host(place)]
            async with self._open().get(place, headers=headers, allow_redirects=False) as response:
                location = response.headers.get("Location", "")
                if response.status in _REDIRECTS and location:
                    place = self._redirect(place, place.join(_parse(location)))
                    continue
                _require_success(place, response.status)
                body = await self._read(place, response)
                return Document(str(place), response.content_type, body)
        raise EventdError(f"{_shown(begin)} is redirected more than {MAX_REDIRECTS} times")

    def _check(self, place: URL) -> URL:
        """Return the url without the user information that a publisher wrote. Raises `Forbidden`."""
        if not place.host:
            raise Invalid(f"{str(place)[:200]!r} is not a url with a host")
        if place.scheme != "https" and not (place.scheme == "http" and self._allow_plain):
            raise Forbidden(f"{_shown(place)} is not fetched: it is not https", hint="allow http with allow_plain")
        if _host(place) not in self._hosts:
            raise Forbidden(
                f"{_shown(place)} is not fetched: {_host(place)!r} is not a listed host", hint="add it to hosts"
            )
        return place.with_user(None)

    def _redirect(self, place: URL, target: URL) -> URL:
        if _host(target) != _host(place) and not self._other_hosts:
            raise Forbidden(
                f"{_shown(place)} is redirected to another host, {_host(target)!r}", hint="allow it with other_hosts"
            )
        if place.scheme == "https" and target.scheme != "https":
            raise Forbidden(f"{_shown(place)} is redirected from https to {target.scheme}")
        return self._check(target)

    async def _read(self, place: URL, response: ClientResponse) -> bytes:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise EventdError(f"{_shown(place)} is compressed, which was not asked for")
        parts: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > self._max_document:
                raise TooLarge(
                    f"{_shown(place)} has more than {self._max_document} bytes", hint="raise max_document to fetch it"
                )
            parts.append(chunk)
        return b"".join(parts)

    def _open(self) -> ClientSession:
        from aiohttp import ClientSession, DummyCookieJar, TCPConnector

        if self._session is None:
            self._session = ClientSession(
                connector=TCPConnector(limit=MAX_CONNECTIONS, ssl=self._tls or True),
                cookie_jar=DummyCookieJar(),
                headers={"User-Agent": "routerd-eventd-client", "Accept-Encoding": "identity"},
                auto_decompress=False,  # a small answer could become a large one before it is measured
            )
        return self._session


def _parse(text: str) -> URL:
    from yarl import URL

    try:
        return URL(text)
    except ValueError:
        raise Invalid(f"{text[:200]!r} is not a url that can be fetched") from None


def _host(place: URL) -> str:
    """Return the host as `hosts` names it: with its port unless that is the scheme's own."""
    host = (place.host or "").lower()
    host = f"[{host}]" if ":" in host else host
    return host if place.is_default_port() else f"{host}:{place.port}"


def _shown(place: URL) -> str:
    """Return a url for a message: without user information and query, which may hold a secret."""
    return str(place.with_user(None).with_query(None))[:200]


def _require_success(place: URL, status: int) -> None:
    if status == 200:
        return
    message = f"{_shown(place)} is answered with {status}"
    if status in _MISSING:
        raise NotFound(message)
    if status in _REFUSED:
        raise Forbidden(message, hint="check the headers for this host")
    if status in _NOT_NOW or status >= 500:
        raise Unavailable(message)
    raise EventdError(message)
