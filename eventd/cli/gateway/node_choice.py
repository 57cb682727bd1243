"""The options of a command that name a node, and how to connect to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from eventd.errors import Invalid

if TYPE_CHECKING:
    from eventd.tls.files import ClientTlsConfig


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The options that name a node. A named database has precedence over a server.

    `bundle` is a support bundle that is read instead of a node. `context` names where they come from, empty for the
    command line and variables; `key_command`, `group` and `protected` are set by contexts alone. `confirmed`: commands
    do not ask for confirmation, even in a protected context.
    """

    server: str
    key: str
    key_file: Path | None
    ca_file: Path | None
    client_cert: Path | None
    client_key: Path | None
    server_name: str
    pin: str
    database: str | None
    data_dir: str | None
    state_file: Path | None
    bundle: Path | None = None
    context: str = ""
    key_command: tuple[str, ...] = ()
    group: str = ""
    protected: bool = False
    confirmed: bool = False

    @property
    def is_remote(self) -> bool:
        named = self.database is not None or self.data_dir is not None or self.state_file is not None
        return bool(self.server) and not named

    def read_tls(self) -> ClientTlsConfig | None:
        """Return how an https server is verified; None for plain HTTP.

        Raises `BadParameter` for options that do not belong together, and for a pin or a name of another form.
        """
        if not self.server.startswith("https://"):
            for option, value in {"--pin": self.pin, "--client-cert": self.client_cert}.items():
                if value and self.server:
                    raise typer.BadParameter(f"{option} needs a server with https://, not {self.server}")
            return None
        from eventd.tls.certificate import PIN
        from eventd.tls.files import ClientTlsConfig, is_server_name

        if self.pin and not PIN.fullmatch(self.pin):
            raise typer.BadParameter("--pin must be sha256// and 44 characters of base64")
        if not is_server_name(self.server_name):
            raise typer.BadParameter("--server-name must be a host name or an IP address, without a port")
        if (self.client_cert is None) != (self.client_key is None):
            raise typer.BadParameter("--client-cert and --client-key belong together")
        ca, cert, key = (
            "" if file is None else str(file.absolute()) for file in (self.ca_file, self.client_cert, self.client_key)
        )
        return ClientTlsConfig(ca, cert, key, self.server_name, frozenset({self.pin} if self.pin else ()))

    def read_key(self) -> str:
        """Return the API key; empty if none is given. Raises `Invalid` for an unreadable file or an invalid key."""
        key = self._find_key()
        if not (key.isascii() and key.isprintable()):
            raise Invalid(
                "the API key contains characters that are not allowed in a key",
                hint="correct --key, EVENTD_API_KEY or the key file: a key is printable ASCII",
            )
        return key

    def _find_key(self) -> str:
        if self.key:
            return self.key
        if self.key_file is not None:
            return self._read_key_file(self.key_file)
        if not self.key_command:
            return ""
        from eventd.cli.gateway.key_command import ask_for_key

        return ask_for_key(self.key_command)

    def _read_key_file(self, file: Path) -> str:
        try:
            key = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
            raise Invalid(f"{file}: {why}", hint="the file must contain only the key") from None
        if not key:
            raise Invalid(f"{file}: is empty", hint="the file must contain only the key")
        return key

    def flags(self) -> dict[str, Any]:
        """Return the settings that these options set, by name; None for an absent one.

        Raises `BadParameter` if both --database and --state-file are given.
        """
        if self.database is not None and self.state_file is not None:
            raise typer.BadParameter("--database and --state-file both name the database: leave one out")
        url = f"sqlite:///{self.state_file.absolute()}" if self.state_file is not None else self.database
        return {"database_url": url, "data_dir": self.data_dir}
