"""An object store in this process that speaks the protocol of S3: moto, on a port of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

BUCKET: Final = "audit-lake"
KEYS: Final = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_DEFAULT_REGION": "us-east-1"}

_ADDRESS: Final = "FSSPEC_S3_ENDPOINT_URL"


@contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """Run a store with an empty bucket; yield the variables by which `s3fs` finds it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # one line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        store = {**KEYS, _ADDRESS: f"http://{host}:{port}"}
        with closing(_client(store)) as client:
            client.create_bucket(Bucket=BUCKET)
        yield store
    finally:
        server.stop()


def read_object(store: dict[str, str], key: str) -> bytes:
    """Return the content of an object of the bucket; `store` has the variables of `object_store`."""
    with closing(_client(store)) as client:
        return bytes(client.get_object(Bucket=BUCKET, Key=key)["Body"].read())


def _client(store: dict[str, str]) -> Any:
    import boto3

    key, secret, region, address = store.values()
    return boto3.client(
        "s3", endpoint_url=address, aws_access_key_id=key, aws_secret_access_key=secret, region_name=region
    )
