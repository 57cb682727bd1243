"""The commands of `routerctl topic` and `routerctl stream`."""

from __future__ import annotations

from typing import Final

from eventd.cli.program.command_line import Branch, Leaf

TOPIC: Final = Branch(
    "Manage topics; write and read their records.",
    {
        "put": Leaf(
            "topics.topics.put", "Create a topic or replace its configuration: fields left out get their defaults."
        ),
        "set": Leaf(
            "topics.topics.set_fields", "Change fields of a topic's configuration; the others stay as they are."
        ),
        "get": Leaf("topics.topics.get", "Show the state of a topic."),
        "list": Leaf("topics.topics.list_topics", "List topics, sorted by name."),
        "describe": Leaf(
            "topics.topics.describe", "Show a topic in detail: configuration, size, seqs, the routers from and to it."
        ),
        "delete": Leaf("topics.topics.delete", "Delete a topic with its records and the routers from and to it."),
        "write": Leaf("topics.records.write", "Write records to a topic, which is created if it is missing."),
        "read": Leaf("topics.records.read", "Show the records of a topic, the oldest first."),
        "purge": Leaf("topics.topics.purge", "Delete records of a topic for good."),
    },
)
STREAM: Final = Branch(
    "Manage streams; publish to them and subscribe to them over QUIC.",
    {
        "create": Leaf("streams.streams.create", "Create a stream: a topic that clients speak to over QUIC."),
        "list": Leaf("streams.streams.list_streams", "List streams, sorted by name, with their offsets."),
        "describe": Leaf(
            "streams.streams.describe",
            "Show a stream in detail: offsets, size, the configuration of its topic, the routers from and to it.",
        ),
        "delete": Leaf(
            "streams.streams.delete", "Delete a stream: its topic with all records, and the routers from and to it."
        ),
        "publish": Leaf("streams.publishing.publish", "Publish payloads to a stream."),
        "subscribe": Leaf(
            "streams.subscribing.subscribe",
            "Show the records of a stream as they arrive, until Ctrl-C, until --count, or until the stream is deleted.",
        ),
        "token": Leaf(
            "streams.stream_tokens.token",
            "Sign a token for clients of streams and caches, and print it: it is not stored.",
        ),
        "keygen": Leaf(
            "streams.stream_tokens.keygen",
            "Create an Ed25519 key pair that signs tokens: the private key in FILE, its key set (JWKS) on standard"
            " output.",
        ),
    },
)
