"""routerctl stream token, keygen: for the operators of a tenant. They need no node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eventd.cli.federation.links import user
from eventd.cli.gateway.session import Session, offline
from eventd.cli.program.key_files import read_private_key
from eventd.cli.program.values import Duration
from eventd.errors import Conflict, Invalid, Unavailable
from eventd.runtime.chance import SYSTEM

if TYPE_CHECKING:
    from eventd.streams.permissions import Permission

USUAL_TTL = Duration(900_000_000)

SubjectOption = Annotated[
    str,
    typer.Option(
        "--subject",
        metavar="NAME",
        help="Client that the token is for; its records have this node (default: your user name).",
    ),
]


@offline("output")
def token(
    session: Session,
    tenant: Annotated[str, typer.Option("--tenant", metavar="TENANT", help="Tenant that the token is for.")],
    signing_key: Annotated[
        Path,
        typer.Option("--signing-key", metavar="FILE", help="File with the tenant's private Ed25519 key, as PEM."),
    ],
    perm: Annotated[
        list[str],
        typer.Option(
            "--perm",
            metavar="ACTION:PATTERN",
            help="`stream.publish`, `stream.subscribe`, `cache.read` or `cache.write`, and what it is allowed on, such"
            " as stream.publish:stream:t1/default/*; repeatable.",
        ),
    ],
    ttl: Annotated[
        Duration, typer.Option("--ttl", metavar="DURATION", min=1_000_000, help="How long the token is valid.")
    ] = USUAL_TTL,
    subject: SubjectOption = "",
    key_id: Annotated[
        str,
        typer.Option("--key-id", metavar="ID", help="Id of the key in its key set (default: as `keygen` makes it)."),
    ] = "",
) -> None:
    """Sign a token for clients of streams and caches, and print it: it is not stored. Needs no node."""
    from eventd.runtime.clock import SECOND, SystemClock
    from eventd.streams.key_pairs import thumbprint
    from eventd.streams.tokens import LONGEST, StreamToken, sign

    permissions = _read_permissions(perm, _read_tenant(tenant))
    key = read_private_key(signing_key, hint="create one with routerctl stream keygen")
    now = SystemClock().now() // SECOND
    about = StreamToken(subject or user(), tenant, now + ttl // SECOND, permissions, key_id or thumbprint(key))
    signed = sign(key, about.key_id, about, now)
    if len(signed) > LONGEST:
        raise Invalid(f"the token would have {len(signed):,} bytes, over {LONGEST:,}", hint="use fewer --perm")
    answer = {
        "token": signed,
        "tenant": tenant,
        "subject": about.subject,
        "keyId": about.key_id,
        "expiresAt": about.expires_at,
        "perms": [f"{each.action}:{each.pattern}" for each in permissions],
    }
    session.out.outcome(answer, signed, name=lambda row: str(row["token"]))


@offline("output")
def keygen(
    session: Session,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="File to create for the private key, readable only by you.")
    ],
    key_id: Annotated[
        str, typer.Option("--key-id", metavar="ID", help="Id of the key in its key set (default: its thumbprint).")
    ] = "",
) -> None:
    """Create an Ed25519 key pair that signs tokens: the private key in FILE, its key set (JWKS) on standard output."""
    import json

    from eventd.streams.key_pairs import SEED_BYTES, key_set_of, make_key, pem_of, thumbprint

    key = make_key(SYSTEM.token(SEED_BYTES))
    chosen = key_id or thumbprint(key)
    _store(out, pem_of(key))
    answer = key_set_of(key, chosen)
    session.out.outcome(answer, json.dumps(answer), name=lambda _: chosen)


def _read_tenant(tenant: str) -> str:
    from eventd.streams.names import is_name

    if not is_name(tenant):
        raise Invalid(
            f"--tenant: {tenant[:80]!r} is not a name",
            hint="a name is 1 to 80 letters, digits, dots, dashes and underscores, and starts with a letter or digit",
        )
    return tenant


def _read_permissions(texts: Sequence[str], tenant: str) -> tuple[Permission, ...]:
    """Return the permissions. Raises `Invalid` for one that allows nothing: the operator has mistyped it."""
    from eventd.streams.permissions import BadPermission, StreamAction, read_permissions

    hint = f"write ACTION:PATTERN, such as stream.subscribe:stream:{tenant}/default/*"
    found: list[Permission] = []
    for text in texts:
        try:
            read = read_permissions([text])
        except BadPermission:
            actions = ", ".join(StreamAction)
            raise Invalid(f"--perm: {text[:80]!r} is not a permission; the actions are {actions}", hint=hint) from None
        if not read:
            raise Invalid(f"--perm: {text[:80]!r} allows nothing on a node", hint="leave it out")
        kind = str(read[0].action).partition(".")[0]
        start = f"{kind}:{tenant}/"
        fixed = read[0].pattern.partition("*")[0]
        if not (fixed.startswith(start) or ("*" in read[0].pattern and start.startswith(fixed))):
            raise Invalid(f"--perm: {text[:80]!r} matches no {kind} of tenant {tenant}", hint=hint)
        found += read
    return tuple(found)


def _store(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read. Raises `Conflict` and `Unavailable`."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise Conflict(f"{path} exists: nothing was changed", hint="name another file with --out") from None
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}", hint="name another file with --out") from None
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(file)
