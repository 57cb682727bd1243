"""The remedy for a link that is blocked, failed or backing off, by its reason. Pure.

docs/operations/troubleshooting.md describes each reason in detail.
"""

from __future__ import annotations

from typing import NamedTuple


class Remedy(NamedTuple):
    """The name of the action in a plan, and the instruction for the operator."""

    action: str
    words: str


_ENDPOINT = "correct-peer-endpoint"
_NAMES = "align-node-names"
_KEYS = "align-keys"
_TLS = "correct-tls"

REMEDIES = {
    "unauthorized": Remedy(
        _KEYS,
        "give both sides the same secret (compare the files by `sha256sum`), or the peer this node's public key, and"
        " send SIGHUP where a file was changed; the peer's log names the key id that it refused",
    ),
    "clock_skew": Remedy("correct-clock", "set the clock of the side that is wrong; the detail shows the peer's time"),
    "wrong_audience": Remedy(
        _NAMES,
        "make `nodeName` of this EventPeer the `nodeName` of the EventGroup on the peer; or correct the endpoint",
    ),
    "wrong_group": Remedy(_ENDPOINT, "correct the endpoint: the listener there belongs to another group"),
    "wrong_sender": Remedy(_KEYS, "make `owner` of the key on the peer the `nodeName` of this node"),
    "not_a_listener": Remedy(
        _ENDPOINT, "use the port of `spec.listen` of the peer's EventGroup in this EventPeer's endpoint"
    ),
    "wrong_path": Remedy(_ENDPOINT, "leave the path out of this EventPeer's endpoint, as in http://10.99.0.7:8787"),
    "address_forbidden": Remedy(
        "allow-address",
        "add the address that the detail names to the setting there, and restart; or correct the endpoint",
    ),
    "invalid_url": Remedy(_ENDPOINT, "correct the host or the port of this EventPeer's endpoint"),
    "not_found": Remedy(_ENDPOINT, "correct the endpoint: the server there is not a peer's listener"),
    "method_not_allowed": Remedy(_ENDPOINT, "correct the endpoint: another program answers there"),
    "no_v2": Remedy(
        "allow-protocol", "set `protocol: auto` in this EventPeer, or upgrade the peer and allow v2 in its `protocols`"
    ),
    "unproven_answer": Remedy(
        _KEYS,
        "add the key that the peer signs with to this node's `auth.keys`; or remove a proxy that answers for the peer",
    ),
    "unproven_too_large": Remedy(
        "raise-proxy-limit", "raise the body limit of the proxy in front of the peer (`client_max_body_size` in nginx)"
    ),
    "impossible_mark": Remedy(
        "renew-epoch",
        "if this node's database is an older copy that was put back by hand, stop the node, run `routerd-eventd"
        " migrate --new-epoch` and start it: every reader of a topic then gets one gap and reads again, earlier tokens"
        " and page cursors are void, and each link is compared with its peer again. Otherwise the fault is the peer's:"
        " notify its operator",
    ),
    "malformed": Remedy(
        "report-fault",
        "look for a proxy that changes requests; without one, report the fault with both nodes' versions",
    ),
    "batch_conflict": Remedy(
        "report-fault", "look for a second node that sends under this node's name; without one, report the fault"
    ),
    "other_history": Remedy("resume-link", "resume the link: this node then asks the peer for its mark"),
    "unsupported_media_type": Remedy("upgrade-peer", "upgrade the peer, or set `protocol: v1` in this EventPeer"),
    "secret_unreadable": Remedy(
        "correct-key-file", "correct the file that the detail names, its owner or its mode; then send SIGHUP"
    ),
    "no_signing_key": Remedy("activate-key", "make one key of this node `active` in `auth.keys` of the EventGroup"),
    "internal": Remedy("report-fault", "check this node's log, resume the link, and report the fault if it returns"),
    "unreachable": Remedy("reach-peer", "start the peer, correct the endpoint, or open its port in the firewall"),
    "timeout": Remedy("reach-peer", "look for a firewall that drops packets; raise `limits.timeout` of this EventPeer"),
    "tls": Remedy(_TLS, "look for a proxy or firewall between the nodes that interferes with TLS"),
    "tls_wrong_name": Remedy(
        _TLS,
        "use the name that the peer's certificate was issued for in this EventPeer's endpoint, or set"
        " `spec.tls.serverName` to it",
    ),
    "tls_unknown_ca": Remedy(
        _TLS, "set `spec.tls.caFile` of this EventPeer to the CA that issued the peer's certificate, or `pins`"
    ),
    "tls_wrong_pin": Remedy(
        _TLS,
        "compare `spec.tls.pins` with `routerd-eventd tls show CERTIFICATE` on the peer: if the peer has a new key, add"
        " its pin; if not, another program answers there",
    ),
    "tls_expired": Remedy(_TLS, "renew the peer's certificate; if it is valid, correct the clock that is wrong"),
    "tls_wrong_node": Remedy(
        _TLS, "correct the endpoint or `nodeName` of this EventPeer: another node of the group answers there"
    ),
    "tls_client_missing": Remedy(
        _TLS, "set `spec.tls.certFile` and `keyFile` of this EventPeer: the peer demands a certificate"
    ),
    "tls_client_unknown_ca": Remedy(
        _TLS,
        "add the CA of this node's certificate, or the certificate itself if it is self-signed, to"
        " `spec.listen.tls.clientCaFile` of the EventGroup on the peer",
    ),
    "tls_client_expired": Remedy(_TLS, "renew this node's certificate, which `spec.tls.certFile` names"),
    "tls_client_refused": Remedy(
        _TLS, "check that this node's certificate may be used by clients (`openssl x509 -purpose`); see the peer's log"
    ),
    "tls_unverified": Remedy(
        _TLS, "issue the peer's certificate again, so that a server may use it (`openssl x509 -purpose`)"
    ),
    "tls_not_spoken": Remedy(
        _ENDPOINT, "write http:// in this EventPeer's endpoint, or declare `spec.listen.tls` on the peer"
    ),
    "tls_required": Remedy(_ENDPOINT, "write https:// in this EventPeer's endpoint"),
    "tls_version": Remedy(_TLS, "let both ends speak TLS 1.3, or at least 1.2 (`spec.listen.tls.minVersion`)"),
    "tls_files": Remedy(
        "correct-certificate-file", "correct the file that the detail names; the node notices within seconds"
    ),
    "wrong_certificate": Remedy(
        _TLS,
        "issue a certificate for this node with the URI urn:eventd:node:NODENAME in its subject alternative names, or,"
        " without such URIs, with `nodeName` as a DNS name",
    ),
    "full": Remedy("make-room", "free space on the peer: it has reached its `retention.maxBytes`"),
    "rewinds": Remedy(
        "check-peer-database",
        "check the peer's database: it confirms batches and then does not have them, as when it is restored repeatedly",
    ),
    "database": Remedy(
        "check-own-database", "check this node's database and its disk; the link then continues by itself"
    ),
    "answer_too_large": Remedy(_ENDPOINT, "look for a proxy or another program that answers in place of the peer"),
    "range_ahead": Remedy(
        "correct-clock", "compare the clocks of both nodes; the node sends the missing batch again by itself"
    ),
    "out_of_step": Remedy("wait", "wait: the node asks the peer for its mark; if this returns, look at the peer's log"),
    "replayed": Remedy(
        "remove-duplicator", "look for a proxy that sends requests twice; the node sends the batch again"
    ),
}
_HTTP = Remedy(
    _ENDPOINT,
    "check the response of `curl -i ENDPOINT/v2/link`; correct the endpoint, or the proxy in front of the peer",
)
_OTHER = Remedy("inspect-link", "check the peer's log: it names the refused request")


def remedy_for(reason: str) -> Remedy:
    """Return the remedy for a link with this reason; a general one for a reason that has none of its own."""
    return REMEDIES.get(reason) or (_HTTP if reason.startswith("http_") else _OTHER)
