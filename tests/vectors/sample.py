"""The parts of vectors of protocol v2, signed without the package: two implementations of one rule must agree."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SECONDS = 1780142400
WINDOW = 300
NONCE = "bm9uY2Utb2Ytb25lLWF0dGVtcHQ"
BATCH = "019e78a1-7000-7abc-8def-0123456789ab"
OTHER_BATCH = "019e78a1-7000-7abc-8def-0123456789ac"
RANGE = 'epoch="pJ3v8Qm1", incarnation=0, after=1041, upto=1141'
MARK = {"epoch": "pJ3v8Qm1", "incarnation": 0, "upto": 1041, "base": 0}
LIMITS = {"batch_bytes": 4096, "batch_events": 8, "event_bytes": 1024, "max_hops": 4}


@dataclass(frozen=True)
class Signer:
    """A key with its secret half, as the sender holds it."""

    id: str
    owner: str = "*"
    state: str = "active"
    secret: str = ""
    seed: bytes = b""
    speaks_for: tuple[str, ...] = ()

    @property
    def algorithm(self) -> str:
        return "ed25519" if self.seed else "hmac-sha256"

    def sign(self, data: bytes) -> bytes:
        if self.seed:
            return Ed25519PrivateKey.from_private_bytes(self.seed).sign(data)
        return hmac.new(self.secret.encode(), data, hashlib.sha256).digest()

    def public_part(self) -> dict[str, Any]:
        """Return the key as a vector shows it to the verifier."""
        about: dict[str, Any] = {"id": self.id, "algorithm": self.algorithm, "state": self.state, "owner": self.owner}
        if self.speaks_for:
            about["speaksFor"] = list(self.speaks_for)
        if not self.seed:
            return about | {"secret": self.secret}
        public = Ed25519PrivateKey.from_private_bytes(self.seed).public_key()
        return about | {"publicKey": b64encode(public.public_bytes_raw()).decode()}


SHARED = Signer("shared", secret="0123456789abcdef0123456789abcdef")
OWN = Signer("a.2026", owner="a", secret="the secret of a")
PENDING = Signer("a.next", owner="a", state="pending", secret="the next secret of a")
RETIRING = Signer("a.last", owner="a", state="retiring", secret="the last secret of a")
REVOKED = Signer("a.lost", owner="a", state="revoked", secret="the lost secret of a")
PAIR = Signer("a.ed", owner="a", seed=hashlib.sha256(b"a.ed").digest())
RELAY = Signer("a.relay", owner="a", secret="the relay secret of a", speaks_for=("*",))
FOREIGN = Signer("c.2026", owner="c", secret="the secret of c")
ANSWERING = Signer("b.2026", owner="b", secret="the secret of b")
ANSWERING_PAIR = Signer("b.ed", owner="b", seed=hashlib.sha256(b"b.ed").digest())
LOST_ANSWERING = Signer("b.lost", owner="b", state="revoked", secret="the lost secret of b")
STRANGER = Signer("stranger", secret="of another group")
RING = (SHARED, OWN, PENDING, RETIRING, REVOKED, PAIR, RELAY, FOREIGN, ANSWERING, ANSWERING_PAIR, LOST_ANSWERING)

LINK_PARTS = (
    '"@method" "@path" "content-digest" "content-type" "content-encoding" "eventd-from" "eventd-to" "eventd-group"'
)
BATCH_PARTS = f'{LINK_PARTS} "eventd-batch" "eventd-range"'
ANSWER_PARTS = '"@status" "content-type" "content-digest" "signature";req;key="eventd"'


def event(id: str = "evt-1", **members: Any) -> str:
    """Return a canonical event; a member set to None is left out, others keep the order of the wire format."""
    values = {
        "id": id,
        "group": "edge",
        "sourceNode": "a",
        "type": "routerd.client.ipv4.observed",
        "subject": "10.88.60.9/32",
        "dedupeKey": id,
        "payload": None,
        "observedAt": "2026-05-30T11:59:58.250000Z",
        "expiresAt": "0001-01-01T00:00:00Z",
    } | members
    present = {name: value for name, value in values.items() if value is not None}
    return json.dumps(present, ensure_ascii=False, separators=(",", ":"))


def content(body: str) -> str:
    """Return the digest of an event without its two times."""
    return hashlib.sha256(body[: body.rindex(',"observedAt":')].encode()).hexdigest()[:32]


def known(body: str, **other: str) -> dict[str, str]:
    """Return an event that the receiver holds."""
    event = json.loads(body)
    return {"id": event["id"], "source": event.get("sourceNode", ""), "digest": content(body), "event": body} | other


def lines(*records: tuple[int, str, str]) -> str:
    """Return the body of a batch."""
    return "".join(f"{position}\t{path}\t{body}\n" for position, path, body in records)


RUNS = {"Content-Type": "application/vnd.eventd.runs"}


def run(position: int, path: str, *bodies: str) -> str:
    """Return a run of consecutive events."""
    events = "".join(f"{body}\n" for body in bodies)
    return f"{position}\t{len(bodies)}\t{len(events.encode())}\t{path}\n{events}"


def digest(body: str | bytes) -> str:
    raw = body if isinstance(body, bytes) else body.encode()
    return f"sha-256=:{b64encode(hashlib.sha256(raw).digest()).decode()}:"


def parameters(key: Signer, **other: Any) -> str:
    """Return the signature parameters of a request: the given ones changed, those set to None left out."""
    values: dict[str, Any] = {
        "created": SECONDS,
        "expires": SECONDS + WINDOW,
        "nonce": NONCE,
        "keyid": key.id,
        "alg": key.algorithm,
        "tag": "eventd-v2",
    }
    written = {name: value for name, value in (values | other).items() if value is not None}
    return "".join(f";{name}={json.dumps(value)}" for name, value in written.items())


def signature(key: Signer, values: dict[str, str], parts: str, params: str) -> str:
    """Return the text of a signature over `parts`; `values` maps the name of each component to its value."""
    names = parts.split(" ") if parts else []
    base = [f"{name}: {values[name.strip(chr(34)) if ';' not in name else name]}" for name in names]
    base.append(f'"@signature-params": ({parts}){params}')
    return f":{b64encode(key.sign(chr(10).join(base).encode())).decode()}:"


def request(
    body: str | bytes,
    *,
    path: str = "/v2/events",
    method: str = "POST",
    key: Signer = SHARED,
    headers: dict[str, str | None] | None = None,
    parts: str = "",
    params: str = "",
    after_signing: dict[str, str | None] | None = None,
    sent: str | bytes | None = None,
) -> dict[str, Any]:
    """Return a signed request. `headers` change before it is signed, `after_signing` and `sent` (the body) after it."""
    link = path.startswith(("/v2/link", "/v2/verify", "/v2/status", "/v2/history"))
    values: dict[str, str | None] = {
        "Content-Type": "application/json" if link else "application/vnd.eventd.batch",
        "Content-Encoding": "identity",
        "Content-Digest": digest(body),
        "Eventd-From": "a",
        "Eventd-To": "b",
        "Eventd-Group": "edge",
    }
    if not link:
        values |= {"Eventd-Batch": BATCH, "Eventd-Range": RANGE}
    values |= headers or {}
    parts = parts or (LINK_PARTS if link else BATCH_PARTS)
    params = params or parameters(key)
    covered = {"@method": method, "@path": path} | {name.lower(): text or "" for name, text in values.items()}
    values["Signature-Input"] = f"eventd=({parts}){params}"
    values["Signature"] = f"eventd={signature(key, covered, parts, params)}"
    values |= after_signing or {}
    data: dict[str, Any] = {
        "method": method,
        "path": path,
        "headers": [[name, text] for name, text in values.items() if text is not None],
    }
    whole = body if sent is None else sent
    if isinstance(whole, bytes):
        return data | {"bodyBase64": b64encode(whole).decode()}
    return data | {"body": whole}


def ring(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the keys of the group that the signatures of these messages name, and the shared one."""
    told = str([dict(message["headers"]).get("Signature-Input") for message in messages])
    return [key.public_part() for key in RING if key is SHARED or f'keyid="{key.id}"' in told]


def vector(
    name: str,
    about: str,
    request: dict[str, Any],
    expect: dict[str, Any],
    *,
    now: float = SECONDS,
    mark: dict[str, Any] | None = MARK,
    **state: list[Any],
) -> dict[str, Any]:
    """Return a whole vector. `state` is the receiver's state besides its mark: nonces, batches, events."""
    return {
        "name": name,
        "about": about,
        "protocol": "v2",
        "receiver": {"node": "b", "group": "edge", "replayWindowSeconds": WINDOW, "limits": LIMITS},
        "keys": ring(request),
        "nowMicros": round(now * 1_000_000),
        "state": {"mark": mark, "nonces": [], "batches": [], "events": []} | state,
        "request": request,
        "expect": expect,
    }


def taken(
    accepted: int, *refused: tuple[int, str, str], duplicates: int = 0, mark: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the outcome of an accepted batch. By default the mark moves to the end of RANGE."""
    return {
        "status": 200,
        "accepted": accepted,
        "duplicates": duplicates,
        "refused": [{"position": position, "id": id, "reason": reason} for position, id, reason in refused],
        "mark": mark or MARK | {"upto": 1141},
    }


def refused(status: int, code: str, reason: str = "") -> dict[str, Any]:
    """Return the outcome of a request that was refused as a whole."""
    return {"status": status, "code": code, "reason": reason or code}


ONE = event("evt-1")
TWO = event("evt-2", subject="10.88.60.10/32", payload={"mac": "02:42:0a:58:3c:0a", "note": "héllo <&>"})
BODY = lines((1042, "", ONE), (1100, "", TWO))


def covering(after: int, upto: int, *, epoch: str = "pJ3v8Qm1", incarnation: int = 0, more: str = "") -> str:
    """Return the Eventd-Range of (after, upto]."""
    return f'epoch="{epoch}", incarnation={incarnation}, after={after}, upto={upto}{more}'
