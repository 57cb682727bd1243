"""The table of the node's settings: their types, defaults, descriptions, flags and variables.

Groups and peers are not settings: they are declared resources in the node's database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, SecretStr

from eventd.net.address_rules import AddressRules
from eventd.settings.console import ConsoleSettings
from eventd.settings.environment import DATA_DIR
from eventd.settings.problems import SettingRow
from eventd.settings.quic import QuicSettings
from eventd.settings.routemaster import SECRETS, RoutemasterSettings
from eventd.settings.values import (
    Age,
    AgeOrNone,
    AnyPath,
    BodySize,
    Endpoint,
    FilePath,
    Format,
    Lake,
    Level,
    MemorySize,
    Seconds,
    StoredSize,
    Switch,
    Text,
    TlsVersion,
    TopicName,
    absolute_path,
    entries_of,
    read_allowed,
    read_bounded,
    read_database,
    read_denied,
    read_endpoint,
    read_entries,
    read_group,
    read_lines,
    show,
)
from eventd.text.credential import HINT, NoCredentials, path_of
from eventd.text.duration import DAY
from eventd.tls.files import ServerTlsConfig

DEFAULT = "default"


class Settings(QuicSettings, RoutemasterSettings, ConsoleSettings):
    """Every setting with its default, read by `load`. `Age` and `AgeOrNone` are microseconds, `Seconds` are seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data_dir: FilePath = Field(Path(DATA_DIR), description="Folder of the node's files; created if it is missing.")
    database_url: Annotated[str, BeforeValidator(read_database)] = Field(
        "", repr=False, description="Database URL (default: the SQLite file `eventd.db` in the data folder)."
    )
    database_url_file: Text = Field(
        "", description="File with the database URL, if it holds a password; or `credential:NAME`."
    )
    api_listen: Annotated[Endpoint, BeforeValidator(read_endpoint)] = Field(
        Endpoint("127.0.0.1", 8780),
        description="`HOST:PORT` of the API, health checks and metrics; port 0 chooses a free one.",
    )
    local_socket: Switch = Field(
        True, description="Serve the API on `eventd.sock` in the data folder, without a key, to the folder's owner."
    )
    port_file: AnyPath = Field(
        None, description="File to write the API's `HOST:PORT` to once it listens; deleted when the node stops."
    )
    api_keys: Annotated[SecretStr, BeforeValidator(read_lines)] = Field(
        SecretStr(""), description="API keys: `KEY[:SCOPES[:PREFIXES]]`, separated by commas."
    )
    api_keys_file: Text = Field("", description="File with more API keys, or `credential:NAME`; SIGHUP re-reads it.")
    api_tls_cert_file: Text = Field(
        "", description="PEM file of the API's certificate, or `credential:NAME`: the API then speaks TLS."
    )
    api_tls_key_file: Text = Field(
        "", description="PEM file of the certificate's private key, or `credential:NAME`; others may not read it."
    )
    api_tls_client_ca_file: Text = Field(
        "", description="PEM file of CAs: clients of the API must show a certificate that one of them issued."
    )
    api_tls_min_version: TlsVersion = Field("1.2", description="Lowest version of TLS of the API: 1.2 or 1.3.")
    api_clients: Annotated[str, BeforeValidator(read_entries)] = Field(
        "",
        description="Names in client certificates that stand for an API key: `NAME[:SCOPES[:PREFIXES]]`, separated by"
        " commas.",
    )
    allow_insecure_no_auth: Switch = Field(
        False, description="Serve the API without keys, even if other machines can reach it."
    )
    allow_debugger: Switch = Field(
        False, description="Allow the node's user to attach debuggers and read its /proc files; allow core dumps."
    )
    group: Annotated[str | None, BeforeValidator(read_group)] = Field(
        None, description="Run only this EventGroup of the database."
    )
    workers: int = Field(
        1,
        ge=1,
        le=64,
        description="Number of processes that share the API and the groups; the first also does the node-wide work.",
    )
    standby: Switch = Field(
        False, description="Stand by while another node serves the database (Postgres), and take over when it ends."
    )
    log_format: Format = Field("auto", description="`json`, `text`, or `auto`: text on a terminal, JSON otherwise.")
    log_level: Level = Field("info", description="Lowest level that is logged: `debug`, `info`, `warning` or `error`.")
    trust_trace_hints: Switch = Field(
        True, description="Link traces to those that peers name beside their batches; used only while tracing is on."
    )
    drain_timeout: Seconds = Field(20.0, description="How long a stop waits for work in progress.")
    prune_interval: Seconds = Field(60.0, description="Time between two runs of retention.")
    batch_retention: Age = Field(
        7 * DAY,
        description="How long ledger rows of batches, gaps, refused requests and id conflicts are kept.",
    )
    dead_letter_retention: Age = Field(30 * DAY, description="How long a dead letter of a peer or plugin is kept.")
    run_retention: Age = Field(
        7 * DAY, description="How long a plugin's run is kept; the latest of a subscription stays."
    )
    action_retention: Age = Field(90 * DAY, description="How long a row of the record of actions is kept.")
    attempt_retention: Age = Field(7 * DAY, description="How long a failed attempt of a callback is kept.")
    notices_topic: TopicName = Field(
        "", description="Topic for notices about callbacks that fail, are disabled or recover; empty: none."
    )
    part_retention: Age = Field(DAY, description="How long a part is kept after it has ended.")
    lake: Lake = Field(
        "", repr=False, description="Folder or fsspec address of the lake for the delivery ledger; empty: none."
    )
    lake_interval: Seconds = Field(
        10.0, le=86_400, description="Pause between two rounds of shipping, at most a day; lake_rows may shorten it."
    )
    lake_rows: int = Field(
        100_000,
        ge=1000,
        le=2_000_000,
        description="Maximum rows of one segment; after that many new log entries, a round starts early.",
    )
    lake_payloads: Switch = Field(False, description="Ship payloads of events, too; otherwise their digests.")
    lake_compact_after: AgeOrNone = Field(
        DAY, description="How long after the end of a day its segments are compacted into the archive; 0: never."
    )
    lake_retention: AgeOrNone = Field(0, description="How long the data of a day is kept in the lake; 0: forever.")
    lake_nice: int = Field(
        19,
        ge=0,
        le=19,
        description="Niceness of the shipping process, 0 to 19; 19 yields to all other processes.",
    )
    callback_allow: Annotated[str, BeforeValidator(read_allowed)] = Field(
        "",
        description="What callbacks may reach besides public addresses: `ADDRESS[/PREFIX][:PORT]` or `HOST[:PORT]`,"
        " separated by commas.",
    )
    callback_deny: Annotated[str, BeforeValidator(read_denied)] = Field(
        "", description="What callbacks must not reach, even if callback_allow has it; written in the same way."
    )
    peer_allow: Annotated[str, BeforeValidator(read_allowed)] = Field(
        "", description="All that links to peers may reach, written as callback_allow; empty: any address."
    )
    peer_deny: Annotated[str, BeforeValidator(read_denied)] = Field(
        "", description="What links to peers must not reach, even if peer_allow has it; written in the same way."
    )
    max_body_bytes: BodySize = Field(64 << 20, description="Largest body of an API request; some have lower limits.")
    max_connections: int = Field(
        256,
        ge=16,
        le=65536,
        description="Maximum connections per listener and process; beyond it, unauthenticated ones are closed first.",
    )
    max_outbox_bytes: MemorySize = Field(
        256 << 20, description="Maximum memory of a process for outbound batches to all peers together."
    )
    max_topics: int = Field(100_000, ge=0, description="Maximum number of topics of records; 0: no limit.")
    max_routers: int = Field(10_000, ge=0, description="Maximum number of routers; 0: no limit.")
    max_total_bytes: StoredSize = Field(
        0, description="Maximum bytes of data and meta in all topics of records together; 0: no limit."
    )
    max_watch_sessions: int = Field(
        10_000, ge=0, description="Maximum number of watch sessions of a process; 0: no limit."
    )
    max_sse_connections: int = Field(
        10_000,
        ge=0,
        description="Maximum open streams of /v0, and WebSockets, of a process, in addition to max_connections;"
        " 0: no limit of their own, they share max_connections with all other connections.",
    )
    max_sse_connections_per_key: int = Field(
        1_000,
        ge=0,
        description="Maximum open streams of /v0 per API key and process, with WebSockets and subscriptions over"
        " QUIC; as many QUIC connections, and as many streams that send requests. 0: no limit.",
    )
    max_inflight_per_key: int = Field(
        1_000,
        ge=0,
        description="Maximum concurrent requests to /v0, waits and pulls per API key and process; 0: no limit.",
    )
    probe_auth: Switch = Field(False, description="Require a key for /healthz, /readyz, /v0/health and /v0/ready, too.")
    credentials_directory: AnyPath = Field(
        None, description="Folder of the files that `credential:NAME` names; systemd sets it."
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _warnings: tuple[str, ...] = PrivateAttr(())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return probable mistakes that do not keep the node from running."""
        return self._warnings

    def note(self, origins: Mapping[str, str], warnings: Iterable[str]) -> None:
        """Keep the origins of the values that are not defaults, and the warnings, both to be shown."""
        self._origins, self._warnings = dict(origins), tuple(warnings)

    def origin(self, name: str) -> str:
        """Return the origin of a value: a flag, a variable, `FILE:LINE: KEY`, or `default`."""
        return self._origins.get(name, DEFAULT)

    def read_secret(self, name: str) -> str:
        """Return the stripped text of a file given by path or as `credential:NAME`.

        Raises ValueError, which names the file.
        """
        path = self.place_of_secret(name)
        try:
            return read_bounded(path).strip()
        except ValueError as error:
            raise ValueError(f"{path} {error}") from None
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None

    @property
    def routemaster_tls(self) -> ServerTlsConfig | None:
        """Return how the Routemaster surface speaks TLS, as `api_tls` does."""
        if not self.routemaster_tls_cert:
            return None
        return ServerTlsConfig(absolute_path(self.routemaster_tls_cert), absolute_path(self.routemaster_tls_key))

    @property
    def quic_tls(self) -> ServerTlsConfig | None:
        """Return the files of the QUIC listener's certificate; None: the node makes a certificate itself."""
        if not self.quic_cert_file:
            return None
        return ServerTlsConfig(absolute_path(self.quic_cert_file), absolute_path(self.quic_key_file))

    @property
    def api_tls(self) -> ServerTlsConfig | None:
        """Return how the API speaks TLS; None for plain HTTP. Its files are absolute paths or `credential:NAME`."""
        if not self.api_tls_cert_file:
            return None
        files = (self.api_tls_cert_file, self.api_tls_key_file, self.api_tls_client_ca_file)
        cert, key, ca = (absolute_path(file) for file in files)
        return ServerTlsConfig(cert, key, ca, self.api_tls_min_version)

    @property
    def callback_rules(self) -> AddressRules:
        """Return which addresses callbacks may reach."""
        return AddressRules.of_callbacks(entries_of(self.callback_allow), entries_of(self.callback_deny))

    @property
    def peer_rules(self) -> AddressRules | None:
        """Return which addresses links to peers may reach; None: any."""
        return AddressRules.of_peers(entries_of(self.peer_allow), entries_of(self.peer_deny))

    def place_of_secret(self, name: str) -> Path:
        """Return the path of a file, given by path or as `credential:NAME`.

        Raises ValueError for a credential if no credentials directory is set.
        """
        try:
            return path_of(name, self.credentials_directory).expanduser()
        except NoCredentials as error:
            raise ValueError(f"{error}: {HINT}") from None

    def describe(self) -> list[SettingRow]:
        """Return every setting with its value, without secrets, and its origin."""
        return [SettingRow(name, show(name, getattr(self, name)), self.origin(name)) for name in NAMES]


_SURFACES: Final = (ConsoleSettings, RoutemasterSettings, QuicSettings)
NAMES: Final = tuple(
    sorted(Settings.model_fields, key=lambda name: [name in surface.model_fields for surface in _SURFACES[::-1]])
)
"""The names of all settings; last those of the console, of the Routemaster surface, and of the QUIC listener."""


def flag_of(name: str) -> str:
    """Return the flag of a setting; empty if it has none.

    Keys have none, because every user of the machine can read command lines; systemd sets the credentials directory.
    """
    if name in ("api_keys", "credentials_directory", *SECRETS):
        return ""
    return "--database" if name == "database_url" else f"--{name.replace('_', '-')}"


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return "CREDENTIALS_DIRECTORY" if name == "credentials_directory" else f"EVENTD_{name.upper()}"
