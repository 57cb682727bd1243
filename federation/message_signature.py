"""The signature of a message: a profile of HTTP Message Signatures (RFC 9421) with Content-Digest (RFC 9530)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from federation.components import Components, cover, require_all, signature_base, write_list
from federation.errors import Malformed, Unauthorized
from federation.keys import Algorithm, Key, KeyRing, dummy_of
from federation.peers import LABEL
from federation.structured import InnerList, Item, Params, parse_dictionary, write_value


def content_digest_header(body: bytes) -> str:
    """Return the Content-Digest of a body."""
    return digest_text(hashlib.sha256(body).digest())


def digest_text(digest: bytes) -> str:
    """Return the Content-Digest of a SHA-256."""
    return f"sha-256={write_value(digest)}"


class MessageSignature(NamedTuple):
    """A signature as read from a message, with the components and parameters that it covers."""

    parts: Components
    params: Params
    signature: bytes

    def text(self, parameter: str) -> str:
        """Return a parameter as text."""
        return str(self.params[parameter])


def lower_names(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return header values by lower-case name.

    The values of a repeated header are joined by commas, as in the signature.
    """
    found: dict[str, str] = {}
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        name, value = name.lower(), value.strip(" \t")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def sign_message(
    headers: dict[str, str], parts: Components, params: Params, values: Mapping[str, str], key: Key
) -> str:
    """Sign the components of a message, add the signature to its headers, and return it as text `:…:`."""
    listed = write_list(parts, params)
    signature = write_value(key.sign(signature_base(parts, listed, values)))
    headers["Signature-Input"] = f"{LABEL}={listed}"
    headers["Signature"] = f"{LABEL}={signature}"
    return signature


def read_signature(values: Mapping[str, str], parts: Components, params: frozenset[str], tag: str) -> MessageSignature:
    """Return the signature of a message, which must cover exactly these components and parameters.

    Raises Unauthorized, the exact cause in `.reason`.
    """
    if "signature-input" not in values or "signature" not in values:
        raise Unauthorized("there is no signature", reason="no_signature")
    try:
        found = parse_dictionary(values["signature-input"]).get(LABEL)
        signature = parse_dictionary(values["signature"]).get(LABEL)
    except Malformed as error:
        raise Unauthorized(f"the signature cannot be read: {error.message}", reason="signature_syntax") from None
    if found is None or signature is None:
        raise Unauthorized(f"there is no signature labelled {LABEL}", reason="no_signature")
    if not isinstance(found, InnerList) or not isinstance(signature, Item) or not isinstance(signature.value, bytes):
        raise Unauthorized("the signature does not have the form of RFC 9421", reason="signature_syntax")
    covered = parts if found.items == parts.items else cover(found.items)  # in any order
    if sorted(covered.written) != sorted(parts.written):
        raise Unauthorized("the signature does not cover exactly the required components", reason="components")
    require_all(parts, values)
    _check_params(found.params, params, tag)
    return MessageSignature(covered, found.params, signature.value)


def _check_params(params: Params, expected: frozenset[str], tag: str) -> None:
    if params.keys() != expected:
        raise Unauthorized("the signature does not have exactly the required parameters", reason="parameters")
    for name, value in params.items():
        kind: type = int if name in ("created", "expires") else str
        if type(value) is not kind:
            raise Unauthorized(f"the signature's {name} has the wrong type", reason="parameters")
    if params["tag"] != tag:
        raise Unauthorized("the signature was made for another protocol", reason="wrong_tag")
    if params["alg"] not in set(Algorithm):
        raise Unauthorized("the signature's algorithm is neither of those of v2", reason="wrong_algorithm")


def check_signature(signed: MessageSignature, values: Mapping[str, str], keys: KeyRing) -> tuple[Key, bytes]:
    """Return the key that made the signature, and the SHA-256 of the body that it covers. Raises Unauthorized.

    An unknown key costs the same work as a known one: that of the algorithm which the message names. Otherwise the time
    would reveal which ids are known.
    """
    found = keys.find(signed.text("keyid"))
    algorithm = Algorithm(signed.text("alg"))
    usable = found is not None and found.usable and found.algorithm is algorithm
    key = found if found is not None and usable else dummy_of(algorithm)
    digest = _digest_in(values["content-digest"])
    base = signature_base(signed.parts, write_list(signed.parts, signed.params), values)
    signature_fits = key.verifies(signed.signature, base)
    if found is None:
        raise Unauthorized("no key of the ring has this id", reason="unknown_key")
    if not found.usable:
        raise Unauthorized(f"key {found.id!r} is revoked", reason="revoked_key")
    if not usable:
        raise Unauthorized(f"key {found.id!r} is of another algorithm", reason="wrong_algorithm")
    if digest is None:
        raise other_body()
    if not signature_fits:
        raise Unauthorized("the signature does not fit", reason="bad_signature")
    return key, digest


def _digest_in(header: str) -> bytes | None:
    """Return the SHA-256 in a Content-Digest; None if it has none or cannot be parsed."""
    try:
        member = parse_dictionary(header).get("sha-256")
    except Malformed:
        return None
    return member.value if isinstance(member, Item) and isinstance(member.value, bytes) else None


def other_body() -> Unauthorized:
    """Return the refusal of a body that does not have the signed digest."""
    return Unauthorized("the body is not the one that was signed", reason="wrong_digest")
