"""routerctl callback secret new, sign, verify: for people who set up or debug a receiver. Needs no node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from eventd.cli.gateway.session import Session, offline
from eventd.cli.terminal.documents import read_input
from eventd.errors import CheckFailed, Invalid
from eventd.runtime.chance import SYSTEM
from eventd.runtime.regular_files import NotRegular, read_regular
from federation import webhooks
from federation.errors import BadKey, MessageError, NoSigningKey
from federation.keys import Key

MAX_SECRET_BYTES = 64 << 10
MAX_BODY_BYTES = 64 << 20
_SECRET_BYTES = 32

SecretFileOption = Annotated[
    list[Path],
    typer.Option(
        "--secret-file",
        metavar="PATH",
        help="File with a secret (`whsec_…`), a private or public key (`whsk_…`, `whpk_…`, PEM); repeatable.",
    ),
]
BodyArgument = Annotated[str, typer.Argument(metavar="[FILE]", help="File with the body (default: standard input).")]


@offline("output")
def new_secret(
    session: Session,
    ed25519: Annotated[
        bool, typer.Option("--ed25519", help="Create a key pair, of which receivers get only the public part.")
    ] = False,
) -> None:
    """Create a secret that signs callbacks, and print it: it is not stored."""
    raw = SYSTEM.token(_SECRET_BYTES)
    if not ed25519:
        secret = webhooks.format_secret(raw)
        session.out.outcome({"secret": secret}, secret, name=lambda row: str(row["secret"]))
        return
    seed = webhooks.format_seed(raw)
    public = webhooks.format_public(webhooks.read_key("new", seed))
    notes = [f"the public part, for receivers: {public}"]
    session.out.outcome({"secret": seed, "public": public}, seed, name=lambda row: str(row["secret"]), notes=notes)


@offline("output")
def sign(
    session: Session,
    secret_file: SecretFileOption,
    body: BodyArgument = "",
    id: Annotated[str, typer.Option("--id", metavar="ID", help="Id of the message (default: a random one).")] = "",
    timestamp: Annotated[
        int | None, typer.Option("--timestamp", metavar="SECONDS", min=0, help="Unix time (default: now).")
    ] = None,
) -> None:
    """Sign a body as a node does, and print the headers in the form that `curl -H @-` reads."""
    from eventd.runtime.clock import SECOND, SystemClock  # loads asyncio, which help does not need

    keys, content = _read_keys(secret_file), _read_body(body)
    moment = SystemClock().now() // SECOND if timestamp is None else timestamp
    chosen = id or f"test-{SYSTEM.token(8).hex()}"
    try:
        signature = webhooks.sign(keys, chosen, moment, content)
    except (NoSigningKey, ValueError) as error:
        raise Invalid(str(error)) from None
    headers = {webhooks.ID: chosen, webhooks.TIMESTAMP: str(moment), webhooks.SIGNATURE: signature}
    session.out.outcome(
        headers, *[f"{name}: {value}" for name, value in headers.items()], name=lambda row: str(row[webhooks.ID])
    )


@offline("output")
def verify(
    session: Session,
    secret_file: SecretFileOption,
    header: Annotated[
        list[str],
        typer.Option("--header", "-H", metavar="HEADER", help="Header `NAME: VALUE` as received; repeatable."),
    ],
    body: BodyArgument = "",
    tolerance: Annotated[
        int,
        typer.Option("--tolerance", metavar="SECONDS", min=0, help="How far the timestamp may be from this clock."),
    ] = webhooks.TOLERANCE,
) -> None:
    """Verify a received request: exits with status 4 and names the wrong part if it is not valid."""
    from eventd.runtime.clock import SystemClock

    keys, content, headers = _read_keys(secret_file), _read_body(body), _read_headers(header)
    try:
        found = webhooks.verify(keys, headers, content, now=SystemClock().now(), tolerance=tolerance)
    except MessageError as error:
        raise CheckFailed(f"the callback is not valid: {error}", hint=_HINTS.get(error.reason, "")) from None
    answer = {"id": found.id, "timestamp": found.timestamp}
    session.out.outcome(answer, f"{found.id} is valid, sent at {found.timestamp}", name=lambda row: str(row["id"]))


_HINTS = {
    "bad_signature": "pass the body byte for byte as received, and the secret of the callback that sent it",
    "clock_skew": "compare the clocks of both machines; for a request of the past, pass a larger --tolerance",
    "missing_header": "pass webhook-id, webhook-timestamp and webhook-signature, each with --header",
}


def _read_keys(files: Sequence[Path]) -> list[Key]:
    """Return the keys in the files. Raises `Invalid`, which names the file and shows nothing of its content."""
    keys = []
    for file in files:
        try:
            keys.append(webhooks.read_key(file.name, read_regular(file, MAX_SECRET_BYTES).content))
        except NotRegular:
            raise Invalid(f"{file} is not a file", hint="name the file of the secret") from None
        except OSError as error:
            raise Invalid(f"cannot read {file}: {error.strerror}") from None
        except BadKey as error:
            raise Invalid(f"{file}: {error}", hint="create a secret with routerctl callback secret new") from None
    return keys


def _read_body(name: str) -> bytes:
    """Return a file, or standard input, unchanged. Raises `Invalid`."""
    try:
        content = read_input(name or "-", MAX_BODY_BYTES)
    except OSError as error:
        raise Invalid(f"cannot read {name}: {error.strerror}") from None
    if len(content) > MAX_BODY_BYTES:
        what = name or "standard input"
        raise Invalid(f"{what} is larger than {MAX_BODY_BYTES >> 20} MiB, the most that is read")
    return content


def _read_headers(lines: Sequence[str]) -> dict[str, str]:
    """Return the headers by name. Raises `Invalid` for one without a colon."""
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise Invalid(f"{line[:60]!r} is not a header", hint="write NAME: VALUE, for example 'webhook-id: m-1'")
        headers[name.strip()] = value.strip()
    return headers
