"""How the values of settings are written: addresses, ages, sizes, switches. Each reader raises ValueError in words that
read on after the setting's name.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import BeforeValidator, SecretStr

from eventd.lake.address import shown

SECOND = 1_000_000
UNITS = {"d": 86400 * SECOND, "h": 3600 * SECOND, "m": 60 * SECOND, "s": SECOND, "ms": SECOND // 1000}
MAX_BYTES = 1 << 20
"""Of a file with settings or a secret."""
SIZES = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1, "": 1}
_DATABASES = ("sqlite:///", "postgresql+psycopg://", "postgresql://", "postgres://")


class Endpoint(NamedTuple):
    """Where to listen. Port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", self.host) is not None


def read_bounded(path: Path) -> str:
    """The text of a file with settings or a secret.

    Raises OSError, and ValueError ("is …") for one that is too large, as some files have no end, or not UTF-8 text.
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
    """What a file's mode lets every user of the machine do: `read`, `change`, `read and change`, or nothing."""
    rights = {"read": stat.S_IROTH, "change": stat.S_IWOTH}
    return " and ".join(right for right, bit in rights.items() if mode & bit)


def read_text(value: Any) -> str:
    """A text, trimmed."""
    if not isinstance(value, str):
        raise ValueError("must be text: put it in quotes")
    if "\x00" in value:
        raise ValueError("must not hold the character U+0000")
    return value.strip()


def read_lines(value: Any) -> str:
    """A text, or a list of them as lines."""
    if isinstance(value, list):
        value = "\n".join(read_text(entry) for entry in value)
    return read_text(value)


def read_path(value: Any) -> Path:
    """An absolute path."""
    return Path(read_text(value)).expanduser().absolute()


def read_truth(value: Any) -> bool:
    """A switch."""
    word = str(value).strip().lower()
    if word not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        raise ValueError(f"{value!r} is neither true nor false")
    return word in ("1", "true", "yes", "on")


def read_endpoint(value: Any) -> Endpoint:
    """`HOST:PORT`."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^:\[\]\s/]+)):(\d{1,5})", read_text(value))
    if match is None or int(match[3]) > 65535:
        raise ValueError(f"{value!r} is no address: write HOST:PORT, such as 127.0.0.1:8780 or [::1]:8780")
    return Endpoint(match[1] or match[2], int(match[3]))


def read_age(value: Any) -> int:
    """Microseconds."""
    text = str(value).strip()
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)", text)
    if match is None:
        advice = f"a unit is missing, {text}s?" if text.isdigit() else "write one such as 500ms, 30s, 5m, 12h or 7d"
        raise ValueError(f"{value!r} is no duration: {advice}")
    return round(float(match[1]) * UNITS[match[2]])


def read_age_or_none(value: Any) -> int:
    """Microseconds; 0: without an end."""
    return 0 if str(value).strip() == "0" else read_age(value)


def read_lake(value: Any) -> str:
    """The address of a lake, or the absolute path of its folder."""
    text = read_text(value)
    if not text or "://" in text:
        return text
    return str(read_path(text))


def read_seconds(value: Any) -> float:
    """Seconds, more than none."""
    if not (microseconds := read_age(value)):
        raise ValueError("must be longer than nothing")
    return microseconds / SECOND


def read_size(value: Any) -> int:
    """Bytes."""
    match = re.fullmatch(r"(\d{1,12})\s*(\w*)", str(value).strip())
    if match is None or match[2] not in SIZES:
        raise ValueError(f"{value!r} is no size: write a number of bytes, or one such as 512KiB, 16MiB or 1GiB")
    size = int(match[1]) * SIZES[match[2]]
    if not 1 << 10 <= size <= 1 << 30:
        raise ValueError(f"{value!r} is not between 1KiB and 1GiB")
    return size


def read_room(value: Any) -> int:
    """Bytes of memory."""
    size = _read_large(value, "write a number of bytes, or one such as 256MiB or 2GiB")
    if not 1 << 20 <= size <= 1 << 40:
        raise ValueError(f"{value!r} is not between 1MiB and 1024GiB")
    return size


def read_ceiling(value: Any) -> int:
    """Bytes that may be stored; 0: any number."""
    return _read_large(value, "write a number of bytes, or one such as 512MiB or 20GiB; 0 for any")


def _read_large(value: Any, meant: str) -> int:
    match = re.fullmatch(r"(\d{1,18})\s*(\w*)", str(value).strip())
    if match is None or match[2] not in SIZES:
        raise ValueError(f"{value!r} is no size: {meant}")
    return min(int(match[1]) * SIZES[match[2]], 1 << 62)


def read_database(value: Any) -> str:
    """The URL of a database we can use."""
    url = read_text(value)
    if not url.startswith(_DATABASES) or url in ("sqlite:///", "sqlite:///:memory:"):
        raise ValueError("is no database URL: write sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME")
    if re.search(r"[?&](ssl)?password=", url):
        raise ValueError("has its password in the query, where it would be shown: write it before the @")
    return url


def read_group(value: Any) -> str:
    """The name of an EventGroup."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}", read_text(value)):
        raise ValueError(f"{value!r} cannot be the name of an EventGroup")
    return read_text(value)


def one_of(*words: str) -> BeforeValidator:
    """One of these words, in any case."""

    def choose(value: Any) -> str:
        if (word := str(value).strip().lower()) not in words:
            raise ValueError(f"{value!r} is none of {', '.join(words)}")
        return word

    return BeforeValidator(choose)


Text = Annotated[str, BeforeValidator(read_text)]
Truth = Annotated[bool, BeforeValidator(read_truth)]
FilePath = Annotated[Path, BeforeValidator(read_path)]
AnyPath = Annotated[Path | None, BeforeValidator(read_path)]
Seconds = Annotated[float, BeforeValidator(read_seconds)]
Age = Annotated[int, BeforeValidator(read_age)]
AgeOrNone = Annotated[int, BeforeValidator(read_age_or_none)]
Lake = Annotated[str, BeforeValidator(read_lake)]
Format = Annotated[Literal["auto", "json", "text"], one_of("auto", "json", "text")]
Level = Annotated[Literal["debug", "info", "warning", "error"], one_of("debug", "info", "warning", "error")]


def show(name: str, value: Any) -> str:
    """A setting as it may be shown: no key, no password."""
    match value:
        case SecretStr():
            return "(set, not shown)" if value.get_secret_value() else ""
        case str() if name == "lake":
            return shown(value)
        case str() if name == "database_url":
            return _without_password(value)
        case bool():
            return str(value).lower()
        case float():
            return _largest(round(value * SECOND), UNITS)
        case int() if name.startswith(("max_", "lake_rows", "lake_nice", "workers")) and not name.endswith("_bytes"):
            return str(value)
        case int():
            return _largest(value, SIZES if name.endswith("_bytes") else UNITS)
        case _:
            return "" if value is None else str(value)


def _largest(value: int, units: Mapping[str, int]) -> str:
    """In the largest unit that holds it exactly."""
    if not value:
        return "0"
    unit, size = next((unit, size) for unit, size in units.items() if value % size == 0 or unit in ("ms", "B"))
    return f"{value / size:g}{unit}" if value % size else f"{value // size}{unit}"


def _without_password(url: str) -> str:
    try:
        password = urlsplit(url).password
    except ValueError:
        return "(set, not shown)"
    return url.replace(f":{password}@", ":***@") if password else url
