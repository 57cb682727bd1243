"""Parses the values of settings: addresses, ages, sizes, switches.

Each parser raises ValueError with words that continue after the setting's name.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, SecretStr

from eventd.errors import Invalid
from eventd.lake.address import shown
from eventd.net.address_rules import parse_entries
from eventd.text.credential import CREDENTIAL
from eventd.text.database_url import POSTGRES_SCHEMES, URL_FORMS, postgres_problem
from eventd.text.duration import SECOND, brief_duration, parse_duration
from eventd.text.quoting import quoted
from eventd.text.size import GIB, KIB, MIB, format_size, parse_size
from eventd.text.topic_names import GROUP_PREFIX, SURFACE_TOPIC, is_topic_name
from eventd.text.user_info import without_password

MAX_BYTES = 1 << 20
"""Size of the largest file with settings or a secret that is read."""
_COUNTS = (
    *("max_", "lake_rows", "lake_nice", "workers"),
    *("quic_max_", "quic_batch_events", "quic_cache_entries"),
)
"""Prefixes of the names of settings that are counts, unless the names end with `_bytes`."""
_DATABASES = ("sqlite:///", *POSTGRES_SCHEMES)


class Endpoint(NamedTuple):
    """An address to listen at. Port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can reach it."""
        return self.host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", self.host) is not None


def read_bounded(path: Path) -> str:
    """Return the text of a file with settings or a secret.

    Raises OSError, and ValueError with a message that begins with "is" for a file that is larger than `MAX_BYTES` or
    not UTF-8. The limit is for special files, some of which have no end.
    """
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"is larger than {MAX_BYTES >> 20} MiB, the most that is read")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None


def rights_of_others(mode: int) -> str:
    """Return what a file's mode lets every user do: `read`, `change`, `read and change`, or empty."""
    rights = {"read": stat.S_IROTH, "change": stat.S_IWOTH}
    return " and ".join(right for right, bit in rights.items() if mode & bit)


def read_text(value: Any) -> str:
    """Return a text without surrounding whitespace."""
    if not isinstance(value, str):
        raise ValueError("must be text: put it in quotes")
    if "\x00" in value:
        raise ValueError("must not contain the character U+0000")
    return value.strip()


def read_lines(value: Any) -> str:
    """Return a text; a list of texts becomes one text with a line for each."""
    if isinstance(value, list):
        value = "\n".join(read_text(entry) for entry in value)
    return read_text(value)


def read_topic_name(value: Any) -> str:
    """Return the name of a topic of records; empty for none. Raises ValueError."""
    name = read_text(value).strip()
    if not name:
        return ""
    if name.startswith(GROUP_PREFIX):
        raise ValueError(f"{quoted(name)} is the topic of an event group: name a topic of records")
    if name == SURFACE_TOPIC:
        raise ValueError(f"{quoted(name)} is the topic of the Routemaster surface: name another topic")
    if not is_topic_name(name):
        raise ValueError(f"{quoted(name)} is not a valid name of a topic: use letters, digits and any of . _ : -")
    return name


def split_entries(lines: Iterable[str]) -> list[str]:
    """Return the texts between commas in these lines, as written, without lines that are comments."""
    return [entry for line in lines if not line.lstrip().startswith("#") for entry in line.split(",")]


def read_entries(value: Any) -> str:
    """Return a text or a list of texts as `read_lines` does; entries in it are separated by commas.

    Raises ValueError for an empty entry: a script with an unset variable writes one. Comments and blank lines are none.
    """
    text = read_lines(value)
    lines = value if isinstance(value, list) else [line for line in text.splitlines() if line.strip()]
    entries = split_entries(lines)
    for number, entry in enumerate(entries, start=1):
        if not entry.strip():
            raise ValueError(f"entry {number} of {quoted(','.join(entries))} is empty: leave it out, with its comma")
    return text


def entries_of(text: str) -> list[str]:
    """Return the entries of a text, without comments and empty ones."""
    return [entry.strip() for entry in split_entries(text.splitlines()) if entry.strip()]


def read_allowed(value: Any) -> str:
    """Return a text or a list of texts as `read_entries` does; its entries are addresses to allow."""
    return _read_addresses(value, allow=True)


def read_denied(value: Any) -> str:
    """Return a text or a list of texts as `read_entries` does; its entries are addresses to deny."""
    return _read_addresses(value, allow=False)


def _read_addresses(value: Any, *, allow: bool) -> str:
    text = read_entries(value)
    try:
        parse_entries(entries_of(text), allow=allow)
    except Invalid as error:
        raise ValueError(str(error)) from None
    return text


def read_path(value: Any) -> Path:
    """Return an absolute path."""
    return Path(read_text(value)).expanduser().absolute()


def absolute_path(file: str) -> str:
    """Return a file, given by path or as `credential:NAME`, with an absolute path."""
    return file if not file or file.startswith(CREDENTIAL) else str(read_path(file))


def read_switch(value: Any) -> bool:
    """Return whether a switch is on: 1, true, yes or on, in any case."""
    word = str(value).strip().lower()
    if word not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        raise ValueError(f"{value!r} is not true or false")
    return word in ("1", "true", "yes", "on")


def read_endpoint(value: Any) -> Endpoint:
    """Return the address of `HOST:PORT`."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^:\[\]\s/]+)):(\d{1,5})", read_text(value))
    if match is None or int(match[3]) > 65535:
        raise ValueError(f"{value!r} is not an address: write HOST:PORT, such as 127.0.0.1:8780 or [::1]:8780")
    return Endpoint(match[1] or match[2], int(match[3]))


def read_age(value: Any) -> int:
    """Return a duration in microseconds. Raises ValueError if it is negative, or 0 without a unit."""
    if (age := _parsed(parse_duration, value)) < 0:
        raise ValueError(f"{quoted(value)} must not be negative")
    if str(value).strip() == "0":
        raise ValueError(f"{quoted(value)} has no unit: write 0s")
    return age


def read_age_or_none(value: Any) -> int:
    """Return a duration in microseconds; 0, also without a unit, means none: forever, or never."""
    return 0 if str(value).strip() == "0" else read_age(value)


def read_lake(value: Any) -> str:
    """Return the address of a lake, or the absolute path of its folder; empty for none."""
    text = read_text(value)
    if not text or "://" in text:
        return text
    return str(read_path(text))


def read_seconds(value: Any) -> float:
    """Return a duration in seconds. Raises ValueError unless it is positive."""
    if not (microseconds := read_age(value)):
        raise ValueError("must be longer than 0s")
    return microseconds / SECOND


def size_between(least: int, most: int) -> BeforeValidator:
    """Return a validator of sizes from `least` to `most` bytes, both included."""

    def read(value: Any) -> int:
        size = read_size(value)
        if not least <= size <= most:
            raise ValueError(f"{quoted(value)} is not between {format_size(least)} and {format_size(most)}")
        return size

    return BeforeValidator(read)


def read_size(value: Any) -> int:
    """Return a size in bytes."""
    return _parsed(parse_size, value)


def _parsed(parse: Callable[[str], int], value: Any) -> int:
    """Parse the value with a parser of `eventd.text`; turn its `Invalid` into a ValueError."""
    try:
        return parse(str(value).strip())
    except Invalid as error:
        raise ValueError(str(error)) from None


def read_database(value: Any) -> str:
    """Return the URL of a supported database, unchanged. Raises ValueError, also for a secret in the query."""
    url = read_text(value)
    if not url.startswith(_DATABASES) or url in ("sqlite:///", "sqlite:///:memory:"):
        raise ValueError(f"is not a database URL: write {URL_FORMS}")
    if url.startswith(POSTGRES_SCHEMES) and (found := postgres_problem(url)):
        raise ValueError(f"{found.message}: {found.advice}")
    return url


def read_group(value: Any) -> str:
    """Return the name of an EventGroup."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}", read_text(value)):
        raise ValueError(f"{value!r} is not a valid name of an EventGroup")
    return read_text(value)


def one_of(*words: str) -> BeforeValidator:
    """Return a validator that accepts these words in any case, and returns them in lowercase."""

    def choose(value: Any) -> str:
        if (word := str(value).strip().lower()) not in words:
            raise ValueError(f"{value!r} is not one of {', '.join(words)}")
        return word

    return BeforeValidator(choose)


Text = Annotated[str, BeforeValidator(read_text)]
Switch = Annotated[bool, BeforeValidator(read_switch)]
FilePath = Annotated[Path, BeforeValidator(read_path)]
AnyPath = Annotated[Path | None, BeforeValidator(read_path)]
Seconds = Annotated[float, BeforeValidator(read_seconds)]
Age = Annotated[int, BeforeValidator(read_age)]
AgeOrNone = Annotated[int, BeforeValidator(read_age_or_none)]
Lake = Annotated[str, BeforeValidator(read_lake)]
TopicName = Annotated[str, BeforeValidator(read_topic_name)]
BodySize = Annotated[int, size_between(KIB, GIB)]
MemorySize = Annotated[int, size_between(MIB, 1024 * GIB)]
StoredSize = Annotated[int, BeforeValidator(read_size)]
"""0: unlimited."""
Format = Annotated[Literal["auto", "json", "text"], one_of("auto", "json", "text")]
TlsVersion = Annotated[Literal["1.2", "1.3"], one_of("1.2", "1.3")]
Level = Annotated[Literal["debug", "info", "warning", "error"], one_of("debug", "info", "warning", "error")]


def show(name: str, value: Any) -> str:
    """Return the value of a setting as a text that is safe to show: without keys and passwords."""
    match value:
        case SecretStr():
            return "(set, not shown)" if value.get_secret_value() else ""
        case str() if name == "lake":
            return shown(value)
        case str() if name == "database_url":
            return without_password(value)
        case bool():
            return str(value).lower()
        case float():
            return brief_duration(round(value * SECOND))
        case int() if name.endswith(("_bytes", "_event_data", "_min_free")):
            return format_size(value)
        case int() if name.startswith(_COUNTS) or name.endswith("_threshold"):
            return str(value)
        case int():
            return brief_duration(value) if value else "0"
        case _:
            return "" if value is None else str(value).replace("\n", ", ")
