"""A second implementation of the verifiable history, written from the definitions and without the package's code.

Trees and proofs are recursive definitions, those of RFC 6962, section 2.1, over lists of entries. Each `open_…` raises
ValueError for what is refused. What both implementations agree on, a third one can rely on.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

NAME = r"[^\s+\x00-\x1f\x7f-\x9f]+"


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unb64(text: str) -> bytes:
    data = base64.b64decode(text.encode("ascii"), validate=True)
    need(b64(data) == text, "base64 is not canonical")
    return data


def need(condition: object, what: str) -> None:
    if not condition:
        raise ValueError(what)


def split(count: int) -> int:
    return 1 << (count - 1).bit_length() - 1


def root(entries: list[bytes]) -> bytes:
    if len(entries) < 2:
        return digest(b"\x00" + entries[0] if entries else b"")
    k = split(len(entries))
    return digest(b"\x01" + root(entries[:k]) + root(entries[k:]))


def path(index: int, entries: list[bytes]) -> list[bytes]:
    if len(entries) == 1:
        return []
    k = split(len(entries))
    if index < k:
        return [*path(index, entries[:k]), root(entries[k:])]
    return [*path(index - k, entries[k:]), root(entries[:k])]


def proof(old: int, entries: list[bytes], whole: bool = True) -> list[bytes]:
    if old == len(entries):
        return [] if whole else [root(entries)]
    k = split(len(entries))
    if old <= k:
        return [*proof(old, entries[:k], whole), root(entries[k:])]
    return [*proof(old - k, entries[k:], False), root(entries[:k])]


def root_by_path(leaf: bytes, index: int, size: int, hashes: list[bytes]) -> bytes:
    need(0 <= index < size, "no such leaf")
    if size == 1:
        need(not hashes, "too many hashes")
        return leaf
    need(hashes, "too few hashes")
    k, last = split(size), hashes[-1]
    if index < k:
        return digest(b"\x01" + root_by_path(leaf, index, k, hashes[:-1]) + last)
    return digest(b"\x01" + last + root_by_path(leaf, index - k, size - k, hashes[:-1]))


def roots_by_proof(old: int, new: int, hashes: list[bytes], known: bytes | None) -> tuple[bytes, bytes]:
    """The roots of the old and the new tree; `known` is the root of the old one, unless a part of it is proven."""
    need(0 < old <= new and (old < new or len(hashes) == (known is None)), "no such sizes, or wrong number of hashes")
    if old == new:
        return (known or hashes[0],) * 2
    need(hashes, "too few hashes")
    k, last = split(new), hashes[-1]
    if old <= k:
        before, after = roots_by_proof(old, k, hashes[:-1], known)
        return before, digest(b"\x01" + after + last)
    before, after = roots_by_proof(old - k, new - k, hashes[:-1], None)
    return digest(b"\x01" + last + before), digest(b"\x01" + last + after)


def multiproof(wanted: set[int], entries: list[bytes], begin: int = 0) -> list[bytes]:
    inside = wanted & {*range(begin, begin + len(entries))}
    if not inside or len(entries) == 1:
        return [] if inside else [root(entries)]
    k = split(len(entries))
    return [*multiproof(wanted, entries[:k], begin), *multiproof(wanted, entries[k:], begin + k)]


def root_by_multiproof(leaves: dict[int, bytes], begin: int, end: int, rest: list[bytes]) -> bytes:
    """The root of a part of a tree; what it needs of the hashes is taken from `rest`, which must then be empty."""
    if not any(begin <= index < end for index in leaves):
        return rest.pop(0)
    if end - begin == 1:
        return leaves[begin]
    middle = begin + split(end - begin)
    left = root_by_multiproof(leaves, begin, middle, rest)
    return digest(b"\x01" + left + root_by_multiproof(leaves, middle, end, rest))


def key_id(name: str, kind: int, public: bytes) -> bytes:
    return digest(name.encode() + b"\n" + bytes([kind]) + public)[:4]


def vkey(name: str, kind: int, seed: bytes) -> str:
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    return f"{name}+{key_id(name, kind, public).hex()}+{b64(bytes([kind]) + public)}"


def open_vkey(text: str) -> tuple[str, int, bytes]:
    need(found := re.fullmatch(f"({NAME})\\+([0-9a-f]{{8}})\\+([A-Za-z0-9+/=]+)", text), "not a vkey")
    assert found
    name, material = found[1], unb64(found[3])
    need(len(material) == 33 and material[0] in (1, 4), "not an Ed25519 key")
    need(key_id(name, material[0], material[1:]).hex() == found[2], "another key id")
    return name, material[0], material[1:]


def signature_line(text: str, name: str, kind: int, seed: bytes, time: int = 0) -> str:
    key = Ed25519PrivateKey.from_private_bytes(seed)
    identity = key_id(name, kind, key.public_key().public_bytes_raw())
    if kind == 1:
        return f"— {name} {b64(identity + key.sign(text.encode()))}\n"
    signed = key.sign(f"cosignature/v1\ntime {time}\n{text}".encode())
    return f"— {name} {b64(identity + time.to_bytes(8, 'big') + signed)}\n"


def open_note(data: bytes, vkeys: list[str]) -> tuple[str, dict[str, int]]:
    """The text, and for each key that signed it the time of its earliest cosignature, or 0."""
    text = data.decode()
    need(len(data) <= 16384 and not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), "too long, or controls")
    body, blank, rest = text.rpartition("\n\n")
    lines = rest.split("\n")
    need(blank and lines.pop() == "" and 1 <= len(lines) <= 16, "not a note")
    signed, opened = dict[str, int](), [(*open_vkey(key), key) for key in vkeys]
    known = {(name, key_id(name, kind, public)): (kind, public, key) for name, kind, public, key in opened}
    for line in lines:
        need(found := re.fullmatch(f"— ({NAME}) (\\S+)", line), "not a signature")
        assert found
        blob = unb64(found[2])
        need(len(blob) > 4, "no signature")
        if (entry := known.get((found[1], blob[:4]))) is not None:
            kind, public, key = entry
            time = verify(kind, public, blob[4:], f"{body}\n")
            signed[key] = min(time, signed.get(key, time))
    return f"{body}\n", signed


def verify(kind: int, public: bytes, blob: bytes, text: str) -> int:
    time = 0
    if kind == 4:
        time, blob = int.from_bytes(blob[:8], "big"), blob[8:]
        need(0 < time < 1 << 63, "not a time")
        text = f"cosignature/v1\ntime {time}\n{text}"
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(blob, text.encode())
    except InvalidSignature:
        raise ValueError("wrong signature") from None
    return time


def open_checkpoint(data: bytes, key: str, witnesses: list[str]) -> tuple[int, bytes, dict[str, int]]:
    text, signed = open_note(data, [key, *witnesses])
    found = re.fullmatch(r"(eventd/[\w.-]+/[\w.:@-]+/[a-z0-9]{16})\n([1-9][0-9]*)\n([A-Za-z0-9+/=]+)\n", text, re.ASCII)
    need(found and found[1] == open_vkey(key)[0] and key in signed, "not a checkpoint of this log")
    assert found
    need(int(found[2]) < 1 << 48 and len(unb64(found[3])) == 32, "not a size, or not a root")
    return int(found[2]), unb64(found[3]), {name: time for name, time in signed.items() if name != key}


def open_file(data: bytes, key: str, witnesses: list[str]) -> tuple[bytes, int, int, dict[str, int]]:
    """The digest of the event, its index, the size of the tree, and the cosignatures that count."""
    file: dict[str, Any] = json.loads(data)
    need(file["format"] == "eventd-proof/1" and ("event" in file) != ("digest" in file), "not a proof file")
    event = digest(file["event"].encode()) if "event" in file else bytes.fromhex(file["digest"])
    head, _, note = file["proof"].partition("\n\n")
    first, second, *hashes = head.split("\n")
    found = re.fullmatch("index ([1-9][0-9]*)", second, re.ASCII)
    need(first == "c2sp.org/tlog-proof@v1" and found, "not a proof of an event")
    assert found
    size, top, signed = open_checkpoint(note.encode(), key, witnesses)
    leaf, opening = digest(b"\x00\x01" + event), digest(b"\x00\x00" + file["opening"]["note"].encode())
    need(root_by_path(leaf, int(found[1]), size, [unb64(one) for one in hashes]) == top, "another event")
    need(root_by_path(opening, 0, size, [unb64(one) for one in file["opening"]["path"]]) == top, "another opening")
    text, by = open_note(file["opening"]["note"].encode(), [key])
    need(text.split("\n")[:2] == [open_vkey(key)[0], key] and key in by, "the opening of another tree")
    return event, int(found[1]), size, signed
