"""The protocol between two nodes, as pure values and rules: no clock, no network, no database.

    event       the Event, its canonical bytes, its ids, its expiry
    lenient     reading an event as tolerantly as v1 senders expect
    selector    does this event match?
    loops       may this event go to that node, may it come from there?
    wire        request headers, receipts, mark queries and error answers of protocol v2, as bytes
    batch       the batches of v2 as bytes; `lines` and `runs` are the two forms of their bodies
    digest      the digest of an event, and a number derived from it that can be summed
    compare     the questions and answers by which two nodes compare the events they hold
    ranges      what a range covers, and how a receiver's mark moves with it
    keys        keys and rings: who may sign, who may speak for whom; `ed25519` reads keys of that algorithm,
                `weak_keys` recognises those whose signatures can be forged
    signing     signing and verifying v2 requests and answers; `components`: what a signature covers
    webhooks    signing and verifying requests in the format of Standard Webhooks
    routemaster what a Routemaster bus and its clients agree on
    structured  structured field values, the syntax of the v2 headers
    v1          the older protocol, one event per request
    history     trees of what a node admitted, and proofs from them: a package of its own
    peers       paths, header names, limits: what both sides must agree on
    errors      everything that can be wrong with a message

A program that only sends can import this package alone; it needs msgspec and cryptography.
"""

from __future__ import annotations
