"""The types of spec fields: each checks a written value, converts it, and words what is wrong with it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, Strict, WithJsonSchema

from eventd.errors import EventdError
from eventd.resources.kinds.spec import wrong
from eventd.streams.names import NAME as STREAM_NAME
from eventd.text import duration, size
from eventd.text.credential import CREDENTIAL
from eventd.text.hosts import is_host_name
from eventd.text.topic_names import GROUP_PREFIX, TOPIC_NAME, is_topic_name
from eventd.tls.certificate import PIN
from eventd.tls.files import is_server_name
from federation.peers import GROUP_NAME, NODE_NAME

RESOURCE_NAME = GROUP_NAME.pattern
"""Every resource name follows the rules of group names."""
KEY_ID = r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,126}"
LONGEST_URL = 8192
LONGEST_LINK = 2048

_SECRET_PATH = "^(?:/.*[^/]|credential:.+)?$"
_ENDPOINT = "^https?://[^?#@]+$"
_URL = "^https?://[^#]+$"


def _name_rule(longest: int, others: str) -> str:
    return f"must be 1 to {longest} letters, digits or {others}, beginning with a letter or a digit"


def _named(pattern: str, longest: int, others: str) -> Callable[[str], str]:
    """Return a check of a name against a pattern; blank is refused as absent."""

    def check(value: str) -> str:
        if not value.strip():
            raise wrong("is required")
        if not re.fullmatch(pattern, value):
            raise wrong(_name_rule(longest, others))
        return value

    return check


def _parsed(parse: Callable[[str], int]) -> Callable[[Any], int]:
    """Return a validator that parses text and reports the parser's error as that of the field."""

    def read(value: Any) -> int:
        if not isinstance(value, str | int | float):  # formatted, a list of aliases may exceed the memory
            raise wrong("must be text")
        try:
            return parse(str(value))
        except EventdError as error:
            raise wrong(error.message, error.hint) from error

    return read


def _between(low: int, high: int, show: Callable[[int], str]) -> AfterValidator:
    def check(value: int) -> int:
        if not low <= value <= high:
            raise wrong(f"must be between {show(low)} and {show(high)}")
        return value

    return AfterValidator(check)


def duration_between(low: int, high: int) -> AfterValidator:
    """Return a check that a duration is at least `low` and at most `high` microseconds."""
    return _between(low, high, duration.format_duration)


def size_between(low: int, high: int) -> AfterValidator:
    """Return a check that a size is at least `low` and at most `high` bytes."""
    return _between(low, high, size.format_size)


def _check_entry(value: str) -> str:
    if not value.strip():
        raise wrong("must not be blank")
    if value != value.lstrip():
        raise wrong("must not begin with white space: events are trimmed, so it would never match")
    return value


def _check_type(value: str) -> str:
    """Check an event type, or a pattern: `*` or `a.b.*`."""
    begin = value.removesuffix("*")
    if "*" in begin or (begin != value and not re.fullmatch(r"|.+\.", begin, re.DOTALL)):
        raise wrong("may contain * only alone, or at the end after a dot", "a.b.* means every type below a.b")
    return _check_name(value)


def _check_name(value: str) -> str:
    if value != value.rstrip() and value.strip():
        raise wrong("must not end with white space: events are trimmed, so it would never match")
    return _check_entry(value)


def _check_text(value: str) -> str:
    """Check a text that is later compared as it is written."""
    if not value.strip():
        raise wrong("is required")
    if value != value.strip():
        raise wrong("must not begin or end with white space")
    return value


def _check_entry_point(value: str) -> str:
    if not value.strip():
        return ""
    if not re.fullmatch(RESOURCE_NAME, value):
        raise wrong(RESOURCE_NAME_RULE, "write only the entry point's name, without module and function")
    return value


def _check_program(value: str) -> str:
    if not value.strip():
        return ""
    if not value.startswith("/") or value.endswith("/"):
        raise wrong("must be an absolute path to a program", "it is run without a shell and without arguments")
    return value


def _check_secret_path(value: str) -> str:
    """Check an absolute path, or `credential:NAME`; blank becomes empty.

    The value may be a secret by mistake: never show it.
    """
    if not value.strip():
        return ""
    if value.startswith(CREDENTIAL):
        if not re.fullmatch(RESOURCE_NAME, value.removeprefix(CREDENTIAL)):
            raise wrong(
                "must name a credential by letters, digits, '.', '_' or '-'",
                "for example credential:edge.key",
            )
        return value
    if not value.startswith("/") or value.endswith("/"):
        raise wrong(
            "must be an absolute path to a file, or credential:NAME",
            "credential:NAME is the file NAME in $CREDENTIALS_DIRECTORY; never write the secret itself here",
        )
    return value


def _check_address(value: str) -> str:
    """Return an IP address or host name in canonical form; blank becomes empty. Port and brackets are refused."""
    value = value.strip()
    if not value:
        return ""
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        pass
    if is_host_name(value):
        return value.lower()
    hint = "write the port in spec.listen.port" if ":" in value or "[" in value else "for example 10.99.0.6 or ::"
    raise wrong("must be an IP address or a host name", hint)


def _check_host(value: str) -> str:
    """Return a host name or IP address in lower case; blank becomes empty."""
    value = value.strip()
    if not is_server_name(value):
        raise wrong("must be a host name or an IP address, without a port")
    return value.lower()


def _check_pin(value: str) -> str:
    if not PIN.fullmatch(value):
        raise wrong("must be sha256// and 44 characters of base64", "print it: routerd-eventd tls show CERTIFICATE")
    return value


def _check_endpoint(value: str) -> str:
    """Return a base URL without a slash at its end. The value is never shown, because it may contain a password."""
    parts = _url_parts(value, "http://10.99.0.7:8787", "peers are authenticated by the group's keys")
    if "?" in value or "#" in value:
        raise wrong("must not contain a query or a fragment")
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{shown}{port}{parts.path}".rstrip("/")


def _check_url(value: str) -> str:
    """Return a URL as it is written, with scheme and host in lower case. The value is never shown."""
    if len(value) > LONGEST_URL:
        raise wrong(f"must not be longer than {LONGEST_URL} characters")
    parts = _url_parts(value, "https://billing.example/hooks", "write spec.auth")
    if "#" in value:
        raise wrong("must not contain a fragment, which is never sent")
    _, _, rest = value.partition("//")
    return f"{parts.scheme}://{parts.netloc.lower()}{rest[len(parts.netloc) :]}"


def _check_link(value: str) -> str:
    """Return the URL of a page for a browser as it is written, with scheme and host in lower case."""
    if len(value) > LONGEST_LINK:
        raise wrong(f"must not be longer than {LONGEST_LINK} characters")
    parts = _url_parts(value, "https://cloud.example:8780/console/", "leave it out: the console asks for a key")
    _, _, rest = value.partition("//")
    return f"{parts.scheme}://{parts.netloc.lower()}{rest[len(parts.netloc) :]}"


def _url_parts(value: str, example: str, no_user: str) -> SplitResult:
    """Return the parts of an http or https URL with a host and without a user name; `no_user` says what replaces it."""
    if not value.strip():
        raise wrong("is required")
    if any(not "!" <= character <= "~" for character in value):
        raise wrong("must be a URL without blanks and without characters outside ASCII")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise wrong(f"must be a URL such as {example}; its host or port is not valid") from error
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https"):
        raise wrong("must begin with http:// or https://", f"for example {example}")
    if "@" in parts.netloc:
        raise wrong("must not contain a user name or a password", no_user)
    if not host:
        raise wrong("must name a host", f"for example {example}")
    if not (":" in host or is_host_name(host) or _is_ipv4(host)):
        raise wrong("must have a valid name or a complete address as its host", f"for example {example}")
    if port == 0:
        raise wrong("must not name port 0", "write a port from 1 to 65535, or leave it out")
    return parts


def _check_topic(value: str) -> str:
    if value.startswith(GROUP_PREFIX):
        raise wrong("must not be the topic of a group", "write source.groupRef")
    if not is_topic_name(value):
        raise wrong(TOPIC_NAME_RULE)
    return value


def _or_blank(check: Callable[[str], str]) -> Callable[[str], str]:
    """Return a check that takes a blank text, too, and returns an empty one for it."""
    return lambda value: check(value) if value.strip() else ""


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


RESOURCE_NAME_RULE = _name_rule(127, "'.', '_', '-'")
TOPIC_NAME_RULE = _name_rule(255, "'.', '_', ':', '-'")
ROUTER_NAME_RULE = _name_rule(255, "'.', '_', ':', '>', '-'")
TENANT_NAME_RULE = _name_rule(80, "'.', '_', '-'")
check_node_name = _named(NODE_NAME.pattern, 253, "'.', '_', ':', '@', '-'")

Whole = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]

NodeName = Annotated[
    str,
    AfterValidator(check_node_name),
    WithJsonSchema({"type": "string", "pattern": f"^{NODE_NAME.pattern}$"}),
]
_check_group_name = _named(RESOURCE_NAME, 127, "'.', '_', '-'")
GroupName = Annotated[
    str,
    AfterValidator(_check_group_name),
    WithJsonSchema({"type": "string", "pattern": f"^{RESOURCE_NAME}$"}),
]
OptionalGroupName = Annotated[
    str,
    AfterValidator(_or_blank(_check_group_name)),
    WithJsonSchema({"type": "string", "pattern": f"^(?:{RESOURCE_NAME})?$"}),
]
_check_key_id = _named(KEY_ID, 127, "'.', '_', ':', '@', '-'")
KeyId = Annotated[
    str,
    AfterValidator(_check_key_id),
    WithJsonSchema({"type": "string", "pattern": f"^{KEY_ID}$"}),
]
OptionalKeyId = Annotated[
    str,
    AfterValidator(_or_blank(_check_key_id)),
    WithJsonSchema({"type": "string", "pattern": f"^(?:{KEY_ID})?$"}),
]
Duration = Annotated[
    int,
    BeforeValidator(_parsed(duration.parse_duration)),
    PlainSerializer(duration.format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": f"^(?:{duration.PATTERN})$", "examples": ["30s", "5m", "1h30m"]}),
]
"""Microseconds; written as `5m`, shown as `5m0s`."""

Size = Annotated[
    int,
    BeforeValidator(_parsed(size.parse_size)),
    PlainSerializer(size.format_size, return_type=str),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^(?:{size.PATTERN})$"}]}
    ),
]
"""Bytes; written as `8388608` or `8MiB`, shown as `8MiB`."""

SecretPath = Annotated[
    str,
    AfterValidator(_check_secret_path),
    WithJsonSchema({"type": "string", "pattern": _SECRET_PATH}),
]
HostName = Annotated[str, AfterValidator(_check_host)]
Pin = Annotated[str, AfterValidator(_check_pin), WithJsonSchema({"type": "string", "pattern": f"^{PIN.pattern}$"})]
Address = Annotated[str, AfterValidator(_check_address)]
Endpoint = Annotated[str, AfterValidator(_check_endpoint), WithJsonSchema({"type": "string", "pattern": _ENDPOINT})]
Url = Annotated[
    str, AfterValidator(_check_url), WithJsonSchema({"type": "string", "pattern": _URL, "maxLength": LONGEST_URL})
]
"""The URL of one resource, requested as it is written: a slash at its end and a query stay."""

OptionalUrl = Annotated[
    str,
    AfterValidator(_or_blank(_check_url)),
    WithJsonSchema({"type": "string", "pattern": f"^(?:{_URL[1:-1]})?$", "maxLength": LONGEST_URL}),
]

OptionalLink = Annotated[
    str,
    AfterValidator(_or_blank(_check_link)),
    WithJsonSchema({"type": "string", "pattern": "^(?:https?://.+)?$", "maxLength": LONGEST_LINK}),
]
"""The URL of a page that a browser is sent to; blank becomes empty."""

TopicName = Annotated[
    str, AfterValidator(_or_blank(_check_topic)), WithJsonSchema({"type": "string", "pattern": f"^(?:{TOPIC_NAME})?$"})
]
"""The name of a topic of records; blank becomes empty."""

StreamLabel = Annotated[
    str,
    AfterValidator(_named(STREAM_NAME, 80, "'.', '_', '-'")),
    WithJsonSchema({"type": "string", "pattern": f"^{STREAM_NAME}$"}),
]
"""The name of a tenant, namespace or cache."""

EventType = Annotated[str, AfterValidator(_check_type)]
SubjectPrefix = Annotated[str, AfterValidator(_check_entry)]
SourceNode = Annotated[str, AfterValidator(_check_name)]
Reference = Annotated[str, AfterValidator(_check_text)]
"""An identifying text of something that need not exist, such as the name of a resource."""

EntryPointName = Annotated[str, AfterValidator(_check_entry_point)]
ProgramPath = Annotated[
    str, AfterValidator(_check_program), WithJsonSchema({"type": "string", "pattern": "^(?:/.*[^/])?$"})
]
Texts = dict[str, str]
"""Texts by key, as written; an empty text stays."""
