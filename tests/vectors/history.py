"""Vectors of the verifiable history: trees, proofs, tiles, keys, notes, checkpoints, opening entries and proof files.

Leaf `i` of the trees is the entry of an event whose canonical form would be the decimal number `i`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.support import plain_history as plain

Vector = dict[str, Any]

TREE = "k3v9x0q2m7p1a8zd"
ORIGIN = f"eventd/edge/site-a/{TREE}"
NEXT = "eventd/edge/site-a/b71mvr90kq2xw4ce"
LOG_SEED, NEXT_SEED, WITNESS_SEED, OTHER_SEED = (bytes([number]) * 32 for number in (1, 2, 3, 4))
LOG = plain.vkey(ORIGIN, 1, LOG_SEED)
WITNESS = plain.vkey("eventd/edge/site-b/witness", 4, WITNESS_SEED)
OTHER = plain.vkey("eventd/edge/site-c/witness", 4, OTHER_SEED)
TIME = 1780142400
EVENT = (
    '{"id":"evt-1","group":"edge","sourceNode":"site-a","type":"routerd.client.ipv4.observed","subject":"10.88.60.9/32",'
    '"dedupeKey":"evt-1","payload":{"port":"ge-0/0/7"},"observedAt":"2026-05-30T11:59:58.250000Z","expiresAt":"0001-01-01T00:00:00Z"}'
)
C2SP_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
C2SP_NOTE = (
    "This is an example message.\n\n— example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
)
"""The example of the specification of signed notes."""


def entry(index: int) -> bytes:
    return b"\x01" + plain.digest(b"%d" % index)


@cache
def entries(size: int) -> list[bytes]:
    return [entry(index) for index in range(size)]


def cases() -> Iterator[Vector]:
    """Yield the vectors."""
    made = (*roots(), *proofs(), *multiproofs(), *tiles(), *keys(), *notes(), *checkpoints(), *openings(), *files())
    for case in made:
        yield {"name": f"history_{case.pop('name')}", "protocol": "history", **case}


def roots() -> Iterator[Vector]:
    for size in (*range(9), 255, 256, 257, 65_535, 65_536, 65_537):
        yield {"name": f"root_{size}", "kind": "root", "size": size, "root": plain.root(entries(size)).hex()}


def proofs() -> Iterator[Vector]:
    for size in range(1, 9):
        for index in range(size):
            hashes = [one.hex() for one in plain.path(index, entries(size))]
            where = {"index": index, "size": size, "path": hashes}
            yield {"name": f"inclusion_{index}_{size}", "kind": "inclusion", **where}
        for old in range(1, size + 1):
            hashes = [one.hex() for one in plain.proof(old, entries(size))]
            yield {"name": f"consistency_{old}_{size}", "kind": "consistency", "old": old, "new": size, "proof": hashes}


def multiproofs() -> Iterator[Vector]:
    for size in range(1, 7):
        for chosen in range(1, 1 << size):
            indices = [index for index in range(size) if chosen >> index & 1]
            hashes = [one.hex() for one in plain.multiproof({*indices}, entries(size))]
            name = f"multiproof_{'_'.join(map(str, indices))}_of_{size}"
            yield {"name": name, "kind": "multiproof", "indices": indices, "size": size, "proof": hashes}


def tiles() -> Iterator[Vector]:
    for size in (1, 255, 256, 257, 70_000):
        found = {path: plain.digest(b"".join(hashes)).hex() for path, hashes in tiles_of(size)}
        yield {"name": f"tiles_{size}", "kind": "tiles", "size": size, "sha256": found}
    right = ["tile/0/000", "tile/0/000.p/1", "tile/1/x001/x234/067", "tile/5/000.p/255"]
    wrong = [
        "tile/0/0",
        "tile/00/000",
        "tile/6/000",
        "tile/0/x000/001",
        "tile/0/000.p/256",
        "tile/0/000.p/0",
        "tile/0/000/",
    ]
    wrong += ["tile/0/1000", "tile/0/000.p/01", "tile/-1/000", "tile/64/000", "/tile/0/000", "tile/0/٠٠٠", "tile/5/001"]
    for number, path in enumerate((*right, *wrong)):
        yield {
            "name": f"tile_path_{number}",
            "kind": "tile_path",
            "path": path,
            "expect": ok(path in right, "tile_path"),
        }


def tiles_of(size: int) -> Iterator[tuple[str, list[bytes]]]:
    """The tiles of a tree of fewer than 256 * 1000 leaves, as the specification defines them."""
    for level in range(3):
        step = 256**level
        for number in range(-(-(size // step) // 256)):
            starts = range(number * 256 * step, min((number + 1) * 256 * step, size - step + 1), step)
            partial = f".p/{len(starts)}" if len(starts) < 256 else ""
            hashes = [plain.root(entries(size)[start : start + step]) for start in starts]
            yield f"tile/{level}/{number:03}{partial}", hashes


def ok(good: bool, reason: str) -> Vector:
    return {"ok": True} if good else {"ok": False, "reason": reason}


def keys() -> Iterator[Vector]:
    yield {"name": "vkey_c2sp", "kind": "vkey", "vkey": C2SP_KEY, "type": 1, "expect": ok(True, "")}
    yield {"name": "vkey_log", "kind": "vkey", "vkey": LOG, "type": 1, "expect": ok(True, "")}
    yield {"name": "vkey_witness", "kind": "vkey", "vkey": WITNESS, "type": 4, "expect": ok(True, "")}
    name, identity, material = LOG.split("+", 2)
    refused = (
        ("as_witness", LOG, 4, "key_type"),
        ("id_upper", f"{name}+{identity.upper()}+{material}", 1, "key_id"),
        ("id_wrong", f"{name}+00000000+{material}", 1, "key_id"),
        ("short", f"{name}+{identity}+{plain.b64(plain.unb64(material)[:-1])}", 1, "key"),
        ("two_parts", f"{name}+{identity}", 1, "key"),
        ("cut", LOG[:-1], 1, "base64"),
        ("blank", f"a b+{identity}+{material}", 1, "key_name"),
        ("unnamed", f"+{identity}+{material}", 1, "key_name"),
    )
    for label, text, kind, reason in refused:
        yield {"name": f"vkey_{label}", "kind": "vkey", "vkey": text, "type": kind, "expect": ok(False, reason)}


def note_case(
    name: str, note: str | bytes, reason: str = "", *, signed: int = 1, keys: tuple[str, ...] = (LOG,)
) -> Vector:
    """A note as base64: some are not text."""
    data = note if isinstance(note, bytes) else note.encode()
    expect = {"ok": True, "signed": list(keys[:signed])} if not reason else ok(False, reason)
    return {"name": f"note_{name}", "kind": "note", "note": plain.b64(data), "vkeys": list(keys), "expect": expect}


def notes() -> Iterator[Vector]:
    text = "one\n\ntwo\n"
    line = plain.signature_line(text, ORIGIN, 1, LOG_SEED)
    other = plain.signature_line(text, NEXT, 1, NEXT_SEED)
    blob = line.split(" ")[2].strip()
    wrong = line.replace(blob, plain.b64(plain.unb64(blob)[:4] + bytes(64)))
    yield note_case("c2sp", C2SP_NOTE, keys=(C2SP_KEY,))
    yield note_case("with_blank_line", f"{text}\n{line}")
    yield note_case("with_unknown", f"{text}\n{other}{line}")
    yield note_case("with_16_signatures", f"{text}\n{line}{other * 15}")
    yield note_case("twice", f"{text}\n{line * 2}")
    yield note_case("known_name_other_id", f"{text}\n{line}{plain.signature_line(text, ORIGIN, 1, OTHER_SEED)}")
    yield note_case("long", (long := "x" * 16_000 + "\n") + "\n" + plain.signature_line(long, ORIGIN, 1, LOG_SEED))
    yield note_case("unsigned", f"{text}\n{other}", "unsigned")
    yield note_case("wrong_signature", f"{text}\n{wrong}", "signature")
    yield note_case("right_and_wrong", f"{text}\n{line}{wrong}", "signature")
    yield note_case("other_text", f"one\n\nthree\n\n{line}", "signature")
    yield note_case("short_signature", f"{text}\n— {ORIGIN} {plain.b64(plain.unb64(blob)[:40])}\n", "signature")
    yield note_case("17_signatures", f"{text}\n{line}{other * 16}", "note_size")
    yield note_case("too_long", "x" * 16_384 + f"\n\n{line}", "note_size")
    yield note_case("no_signature", f"{text}\n", "note")
    yield note_case("no_blank_line", f"one\n{line}", "note")
    yield note_case("no_line_feed", f"{text}\n{line}".rstrip("\n"), "note")
    yield note_case("hyphen", f"{text}\n{line.replace('—', '-')}", "note")
    yield note_case("only_key_id", f"{text}\n— {ORIGIN} {plain.b64(plain.unb64(blob)[:4])}\n", "note")
    yield note_case("three_words", f"{text}\n{line.rstrip()} x\n", "base64")
    yield note_case("no_name", f"{text}\n—  {blob}\n", "key_name")
    yield note_case("plus_in_name", f"{text}\n— a+b {blob}\n", "key_name")
    yield note_case("no_break_space", f"{text}\n— a\u00a0b {blob}\n", "key_name")
    yield note_case("unpadded", f"{text}\n{line.replace('=', '')}", "base64")
    yield note_case("trailing_bits", f"{text}\n{line.replace(blob, trailing_bit(blob))}", "base64")
    yield note_case("url_base64", f"{text}\n— {ORIGIN} {'_' * 92}\n", "base64")
    yield note_case("crlf", f"{text}\n{line}".replace("\n", "\r\n"), "text")
    yield note_case("nul", f"a\0\n\n{line}", "text")
    yield note_case("tab", f"a\tb\n\n{line}", "text")
    yield note_case("delete", f"a\x7f\n\n{line}", "text")
    yield note_case("c1_control", f"a\x85\n\n{line}", "text")
    yield note_case("latin_1", f"ä\n\n{line}".encode().replace("ä".encode(), b"\xe4"), "text")
    yield note_case("surrogate", b"\xed\xa0\x80\n\n" + line.encode(), "text")


def trailing_bit(text: str) -> str:
    """The base64 of the same bytes, with a bit set that a lenient decoder ignores."""
    at = text.index("=") - 1
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return text[:at] + digits[digits.index(text[at]) + 1] + text[at + 1 :]


def checkpoint_text(size: int | str = 9, top: str = "", origin: str = ORIGIN) -> str:
    return f"{origin}\n{size}\n{top or plain.b64(plain.root(tree_entries()))}\n"


def checkpoint_case(name: str, text: str, reason: str = "", *lines: str, times: dict[str, int] | None = None) -> Vector:
    signatures = "".join(lines) or plain.signature_line(text, ORIGIN, 1, LOG_SEED)
    note = {"note": plain.b64(f"{text}\n{signatures}".encode()), "vkey": LOG, "witnesses": [WITNESS, OTHER]}
    expect = ok(False, reason) if reason else {"ok": True, "size": 9, "cosigned": times or {}}
    return {"name": f"checkpoint_{name}", "kind": "checkpoint", **note, "expect": expect}


def cosignature(text: str, seed: bytes = WITNESS_SEED, site: str = "site-b", time: int = TIME) -> str:
    return plain.signature_line(text, f"eventd/edge/{site}/witness", 4, seed, time)


def checkpoints() -> Iterator[Vector]:
    text = checkpoint_text()
    signed = plain.signature_line(text, ORIGIN, 1, LOG_SEED)
    yield checkpoint_case("plain", text)
    both = (cosignature(text), cosignature(text, OTHER_SEED, "site-c", TIME + 9))
    yield checkpoint_case("cosigned", text, "", signed, *both, times={WITNESS: TIME, OTHER: TIME + 9})
    later = (cosignature(text, time=TIME + 5), cosignature(text))
    yield checkpoint_case("cosigned_twice", text, "", signed, *later, times={WITNESS: TIME})
    yield checkpoint_case("unknown_witness", text, "", signed, cosignature(text, bytes(32), "site-d"))
    yield checkpoint_case("cosigned_only", text, "unsigned", cosignature(text))
    yield checkpoint_case("cosigned_another", text, "signature", signed, cosignature(checkpoint_text(8)))
    as_log = plain.signature_line(text, "eventd/edge/site-b/witness", 1, WITNESS_SEED)
    yield checkpoint_case("witness_signs_like_a_log", text, "", signed, as_log)
    # The cosignature of the log's own key, under its name: it is not the signature of the tree.
    yield checkpoint_case("log_cosigns", text, "unsigned", plain.signature_line(text, ORIGIN, 4, LOG_SEED, TIME))
    yield checkpoint_case("time_0", text, "signature", signed, cosignature(text, time=0))
    yield checkpoint_case("time_2_63", text, "signature", signed, cosignature(text, time=1 << 63))
    yield checkpoint_case("size_0", checkpoint_text(0), "size")
    for size in ("007", "-1", "+9", "9 ", "", "9.0", "1_0", "٩", str(1 << 48), str(1 << 63), "9" * 40):
        yield checkpoint_case(f"size_is_{size.strip() or 'empty'}", checkpoint_text(size), "number")
    top = plain.b64(plain.root(tree_entries()))
    yield checkpoint_case("root_unpadded", checkpoint_text(top=top.rstrip("=")), "base64")
    yield checkpoint_case("root_trailing_bits", checkpoint_text(top=trailing_bit(top)), "base64")
    yield checkpoint_case("root_short", checkpoint_text(top=plain.b64(bytes(31))), "hash")
    yield checkpoint_case("root_empty", f"{ORIGIN}\n9\n\n", "hash")
    yield checkpoint_case("extension_line", f"{text}more\n", "checkpoint")
    yield checkpoint_case("two_lines", f"{ORIGIN}\n9\n", "checkpoint")
    for number, origin in enumerate((f"{ORIGIN}/x", "eventd/edge/site-a", f"other/edge/site-a/{TREE}", ORIGIN.upper())):
        yield checkpoint_case(f"origin_{number}", checkpoint_text(origin=origin), "origin")
    yield checkpoint_case("origin_of_another_tree", checkpoint_text(origin=NEXT), "origin")


def opening_text(origin: str = ORIGIN, key: str = LOG, rest: str = f"first\n0\n{TIME}000000\n-\n-\n-\n") -> str:
    return f"{origin}\n{key}\n{rest}"


def opening_note(text: str, *signers: tuple[str, bytes]) -> str:
    lines = [plain.signature_line(text, name, 1, seed) for name, seed in signers or ((ORIGIN, LOG_SEED),)]
    return f"{text}\n{''.join(lines)}"


def opening_case(name: str, note: str, reason: str = "", first: str = "00", *, by_previous: bool = False) -> Vector:
    entry = bytes.fromhex(first) + note.encode()
    expect = ok(False, reason) if reason else {"ok": True, "signedByPrevious": by_previous}
    return {"name": f"opening_{name}", "kind": "opening", "entry": plain.b64(entry), "previous": LOG, "expect": expect}


def openings() -> Iterator[Vector]:
    next_key = plain.vkey(NEXT, 1, NEXT_SEED)
    top = plain.b64(plain.root(tree_entries()))

    def successor(reason: str, origin: str = ORIGIN, size: str = "9", last: str = top) -> str:
        return opening_text(NEXT, next_key, f"{reason}\n42\n{TIME}000000\n{origin}\n{size}\n{last}\n")

    mine = (NEXT, NEXT_SEED)
    rotated = successor("key")
    yield opening_case("first", opening_note(opening_text()))
    yield opening_case("key_both_sign", opening_note(rotated, mine, (ORIGIN, LOG_SEED)), by_previous=True)
    yield opening_case("key_lost", opening_note(rotated, mine))
    yield opening_case("epoch", opening_note(successor("epoch"), mine))
    yield opening_case("damage", opening_note(successor("damage"), mine))
    forged = plain.signature_line("x\n", ORIGIN, 1, LOG_SEED)
    yield opening_case("previous_key_wrong", opening_note(rotated, mine) + forged, "signature")
    yield opening_case("not_signed_by_own_key", opening_note(rotated, (ORIGIN, LOG_SEED)), "unsigned")
    yield opening_case("key_of_another_tree", opening_note(opening_text(key=next_key), (NEXT, NEXT_SEED)), "origin")
    yield opening_case("witness_key", opening_note(opening_text(key=WITNESS)), "key_type")
    yield opening_case("first_with_previous", opening_note(successor("first"), mine), "previous")
    without = opening_text(rest=f"key\n0\n{TIME}000000\n-\n-\n-\n")
    yield opening_case("key_without_previous", opening_note(without), "previous")
    yield opening_case("succeeds_itself", opening_note(successor("epoch", origin=NEXT), mine), "previous")
    stranger = ORIGIN.replace("site-a", "site-b")
    yield opening_case("succeeds_another_node", opening_note(successor("epoch", origin=stranger), mine), "previous")
    yield opening_case("previous_size_0", opening_note(successor("epoch", size="0"), mine), "previous")
    yield opening_case("previous_root_missing", opening_note(successor("epoch", last="-"), mine), "base64")
    yield opening_case("unknown_reason", opening_note(successor("restore"), mine), "opening")
    yield opening_case("position_007", opening_note(opening_text(rest="first\n007\n1\n-\n-\n-\n")), "number")
    yield opening_case("position_2_63", opening_note(opening_text(rest=f"first\n{1 << 63}\n1\n-\n-\n-\n")), "number")
    yield opening_case("seven_lines", opening_note(opening_text(rest="first\n0\n1\n-\n-\n")), "opening")
    yield opening_case("entry_of_an_event", opening_note(opening_text()), "entry", "01")
    yield opening_case("entry_of_a_salted_leaf", opening_note(opening_text()), "entry", "02")
    yield opening_case("nothing", "", "entry", "")


@cache
def tree_entries() -> list[bytes]:
    """A tree of nine leaves: its opening entry, six events, the event of the proof file at index 7, and one more."""
    opening = b"\x00" + opening_note(opening_text()).encode()
    return [opening, *(entry(index) for index in range(1, 7)), b"\x01" + plain.digest(EVENT.encode()), entry(8)]


def proof_file(**changes: Any) -> Vector:
    text = checkpoint_text()
    note = f"{text}\n{plain.signature_line(text, ORIGIN, 1, LOG_SEED)}{cosignature(text)}"
    hashes = "".join(f"{plain.b64(one)}\n" for one in plain.path(7, tree_entries()))
    opening = {"note": tree_entries()[0][1:].decode(), "path": list(map(plain.b64, plain.path(0, tree_entries())))}
    proof = f"c2sp.org/tlog-proof@v1\nindex 7\n{hashes}\n{note}"
    made: Vector = {"format": "eventd-proof/1", "event": EVENT, "proof": proof, "opening": opening}
    return {name: value for name, value in (made | changes).items() if value is not None}


def file_case(name: str, file: Vector | str, reason: str = "", keys: tuple[str, ...] = (LOG,)) -> Vector:
    text = file if isinstance(file, str) else json.dumps(file, ensure_ascii=False)
    proven = {
        "ok": True,
        "digest": plain.digest(EVENT.encode()).hex(),
        "index": 7,
        "size": 9,
        "cosigned": {WITNESS: TIME},
    }
    expect = ok(False, reason) if reason else proven
    return {
        "name": f"file_{name}",
        "kind": "file",
        "file": text,
        "vkeys": list(keys),
        "witnesses": [WITNESS],
        "expect": expect,
    }


def files() -> Iterator[Vector]:
    whole = proof_file()
    proof, opening = whole["proof"], whole["opening"]
    digest = plain.digest(EVENT.encode()).hex()
    hashes = proof.split("\n\n")[0].split("\n")[2:]
    yield file_case("event", whole)
    yield file_case("digest", proof_file(event=None, digest=digest))
    yield file_case("other_event", proof_file(event=EVENT.replace("ge-0/0/7", "ge-0/0/8")), "root")
    yield file_case("not_canonical", proof_file(event=EVENT.replace('"evt-1",', '"evt-1", ', 1)), "malformed")
    yield file_case("other_digest", proof_file(event=None, digest="00" * 32), "root")
    yield file_case("digest_upper", proof_file(event=None, digest=digest.upper()), "digest")
    yield file_case("digest_not_hex", proof_file(event=None, digest="g" * 64), "digest")
    yield file_case("event_and_digest", proof_file(digest=digest), "file")
    yield file_case("neither", proof_file(event=None), "file")
    yield file_case("other_index", proof_file(proof=proof.replace("index 7", "index 6")), "root")
    yield file_case("index_of_the_opening", proof_file(proof=proof.replace("index 7", "index 0")), "index")
    yield file_case("index_beyond", proof_file(proof=proof.replace("index 7", "index 9")), "index")
    yield file_case("index_007", proof_file(proof=proof.replace("index 7", "index 007")), "number")
    yield file_case("index_2_48", proof_file(proof=proof.replace("index 7", f"index {1 << 48}")), "number")
    yield file_case("hash_missing", proof_file(proof=proof.replace(f"{hashes[0]}\n", "")), "proof_length")
    yield file_case("hashes_swapped", proof_file(proof=swapped(proof, hashes)), "root")
    yield file_case(
        "64_hashes", proof_file(proof=proof.replace(hashes[0], "\n".join([hashes[0]] * 61))), "proof_length"
    )
    yield file_case("extra_line", proof_file(proof=proof.replace("index", "extra YQ==\nindex")), "proof")
    yield file_case("other_header", proof_file(proof=proof.replace("@v1", "@v2")), "proof")
    yield file_case("no_checkpoint", proof_file(proof=proof.split("\n\n")[0] + "\n\n"), "note")
    # A tree of ten leaves has paths of the same form here: only the signature tells the sizes apart.
    yield file_case("other_size", proof_file(proof=proof.replace("\n9\n", "\n10\n")), "signature")
    yield file_case("size_of_longer_paths", proof_file(proof=proof.replace("\n9\n", "\n17\n")), "proof_length")
    yield file_case(
        "other_opening", proof_file(opening=opening | {"note": opening["note"].replace("\n0\n", "\n1\n")}), "root"
    )
    yield file_case("opening_path_short", proof_file(opening=opening | {"path": opening["path"][1:]}), "proof_length")
    yield file_case("no_key", whole, "no_key", ())
    yield file_case("key_of_another_tree", whole, "no_key", (plain.vkey(NEXT, 1, NEXT_SEED),))
    yield file_case("another_key_of_the_tree", whole, "unsigned", (plain.vkey(ORIGIN, 1, OTHER_SEED),))
    yield file_case("other_format", proof_file(format="eventd-proof/2"), "file")
    yield file_case("unknown_member", proof_file(keys=[LOG]), "file")
    yield file_case("member_twice", json.dumps(whole)[:-1] + ', "format": "eventd-proof/1"}', "file")
    yield file_case("not_json", "{", "file")
    yield file_case("deep", "[" * 9_000, "file")
    yield file_case("surrogate", json.dumps(proof_file(event="\ud800")), "text")


def swapped(proof: str, hashes: list[str]) -> str:
    first, second = hashes[:2]
    return proof.replace(f"{first}\n{second}", f"{second}\n{first}")
