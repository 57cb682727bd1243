"""Reads rows from running nodes, over their API. A task reads a range of numbers, page by page."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from eventd.audit.source.options import OnGap, SourceOptions
from eventd.audit.source.origin import (
    LedgerExtent,
    LedgerPartition,
    NumberedOrigin,
    Snapshot,
    UnreadableRows,
    rows_gone,
)
from eventd.audit.source.spark_columns import tabulate
from eventd.client.refusals.answers import restore
from eventd.errors import Conflict, EventdError, Invalid, SecretUnreadable, Unavailable
from eventd.lake.address import shown
from eventd.lake.layout import LedgerKey
from eventd.lake.schema import Ledger
from eventd.net.address import Address
from eventd.runtime.backoff import Backoff
from eventd.runtime.chance import SYSTEM

if TYPE_CHECKING:
    import pyarrow as pa

PAGE_ROWS: Final = 20_000
"""Maximum number of rows of one response."""
REQUEST_SECONDS: Final = 60.0
TRIES: Final = 6
"""Attempts to reach a node, over about ten seconds: it may be starting."""
_WAIT: Final = Backoff(base=0.3, cap=5.0)


class NodeOrigin(NumberedOrigin):
    """An origin of rows: the ledgers of one or many running nodes."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._open: dict[str, _Api] = {}

    def snapshot(self) -> Snapshot:
        extents = []
        self._places = {}
        for place in self._options.places:
            ledgers = self._api(place).get("/api/v1/books")
            span = ledgers["books"][self._options.book.value]
            for node in ledgers["nodes"]:
                ledger = LedgerKey(node, ledgers["epoch"], self._options.book)
                if not self._options.wants(ledger.node, ledger.epoch):
                    continue
                if ledger in self._places:
                    raise Invalid(
                        f"the node {node} answers at two addresses, {shown(self._places[ledger])} and {shown(place)}",
                        hint="give only one of them",
                    )
                self._places[ledger] = place
                extents.append(LedgerExtent(ledger, span["first"] - 1, span["last"]))
        return Snapshot([extent for extent in extents if extent.upto > extent.after], [])

    def read(self, partition: LedgerPartition, columns: Sequence[str]) -> Iterator[pa.Table]:
        after = partition.after
        while after < partition.upto:
            page = self._page(partition, after)
            if page["lost"] and partition.resumed and self._options.on_gap is OnGap.FAIL:
                raise rows_gone(
                    [UnreadableRows(partition.ledger, after, page["upto"], "retention has evicted some of them")]
                )
            found = page["columns"]
            if "digest" in found:
                found["digest"] = list(map(bytes.fromhex, found["digest"]))
            yield tabulate(partition.ledger.book, found, columns)
            if page["upto"] <= after:
                return
            after = page["upto"]

    def close(self) -> None:
        for api in self._open.values():
            api.close()
        self._open.clear()

    def _page(self, partition: LedgerPartition, after: int) -> Any:
        ledger = partition.ledger
        rows = PAGE_ROWS if ledger.book is Ledger.DELIVERIES else min(PAGE_ROWS, partition.upto - after)
        query = {"after": after, "rows": rows, "epoch": ledger.epoch, "node": ledger.node}
        if self._options.payloads:
            query["payloads"] = "true"
        try:
            return self._api(partition.place).get(f"/api/v1/books/{ledger.book.value}", query)
        except Conflict as error:
            raise rows_gone([UnreadableRows(ledger, after, partition.upto, error.message)]) from None

    def _api(self, place: str) -> _Api:
        if place not in self._open:
            self._open[place] = _Api(place, self._options.key_file)
        return self._open[place]


class _Api:
    """A client of a node's API that keeps one connection open."""

    def __init__(self, place: str, key_file: str) -> None:
        self._address = Address.parse(place)
        self._headers = {"Accept": "application/json"}
        if key_file:
            self._headers["Authorization"] = f"Bearer {_read_key(key_file)}"
        self._connection: HTTPConnection | None = None

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Return the node's response, decoded from JSON.

        Raises the error that the node responded with, Unavailable after `TRIES` attempts, and EventdError if the
        response is not JSON.
        """
        target = f"{self._address.prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        for failures in range(1, TRIES + 1):
            try:
                return self._ask(target)
            except Unavailable:
                self.close()
                if failures == TRIES:
                    raise
                threading.Event().wait(_WAIT.delay(failures, SYSTEM.fraction()))
        raise AssertionError("unreachable")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, target: str) -> Any:
        address = self._address
        try:
            if self._connection is None:
                kind = HTTPSConnection if address.secure else HTTPConnection
                self._connection = kind(address.host, address.port, timeout=REQUEST_SECONDS)
            self._connection.request("GET", target, headers=self._headers)
            answer = self._connection.getresponse()
            status, content = answer.status, answer.read()
        except (OSError, HTTPException) as error:
            words = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unavailable(
                f"cannot reach {address}: {words}",
                hint="check that the node runs, and that this is the address of its API",
            ) from None
        if status != 200:
            refusal = restore(status, content)
            raise type(refusal)(f"{address} refuses: {refusal.message}", hint=refusal.hint)
        try:
            return msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise EventdError(
                f"{address} answers, but is not a routerd-eventd node", hint="use the address of a node's API"
            ) from None


def _read_key(path: str) -> str:
    try:
        key = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        key = ""
    if not key:
        raise SecretUnreadable(
            f"the option keyFile names {path}, which cannot be read or is empty",
            hint="put the file with the key on every machine that runs tasks",
        )
    return key
