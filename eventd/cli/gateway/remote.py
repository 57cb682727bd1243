"""Access to a running node through its API over TCP."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException, IncompleteRead
from typing import TYPE_CHECKING

from eventd.cli.gateway.api_gateway import REQUEST_SECONDS, ApiGateway
from eventd.errors import Unavailable
from eventd.net.address import Address

if TYPE_CHECKING:
    from eventd.tls.files import ClientTlsConfig


class RemoteGateway(ApiGateway):
    """Runs operations over the API of the node at an address, with an API key."""

    def __init__(self, server: str, key: str, tls: ClientTlsConfig | None = None) -> None:
        """`tls` applies to an https address; without one, the system's CAs verify the node."""
        self._address = Address.parse(server)
        self._tls = tls
        self.server = str(self._address)
        self._key = key
        self._connection: HTTPConnection | None = None

    def exchange(self, method: str, target: str, body: bytes | None, most: int) -> tuple[int, bytes]:
        try:
            connection = self._connect()
            connection.request(method, f"{self._address.prefix}{target}", body, self._headers(body))
            answer = connection.getresponse()
            content = answer.read(most + 1)
            if answer.length and len(content) <= most:
                raise IncompleteRead(content, answer.length)  # a read of a limited size does not raise it
        except (OSError, HTTPException) as error:
            self._disconnect()
            raise self._unreachable(error) from None
        except BaseException:
            self._disconnect()  # a connection that was interrupted within an exchange refuses the next request
            raise
        if len(content) > most:
            self._disconnect()  # the rest of the answer would be read as the next one
        return answer.status, content

    def _connect(self) -> HTTPConnection:
        if self._connection is None:
            host, port = self._address.host, self._address.port
            if self._address.secure:
                from eventd.cli.gateway.secure import SecureConnection

                self._connection = SecureConnection(host, port, self._tls, timeout=REQUEST_SECONDS)
            else:
                self._connection = HTTPConnection(host, port, timeout=REQUEST_SECONDS)
        return self._connection

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers

    def _unreachable(self, error: Exception) -> Unavailable:
        if isinstance(error, TimeoutError):
            words = f"no answer within {REQUEST_SECONDS:g} s"
        else:
            words = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Unavailable(
            f"cannot reach {self._address}: {words}",
            hint="check that the node is running and that this is the address of its API",
        )

    def serving(self) -> str:
        return f"the node at {self.server}"

    async def close(self) -> None:
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
