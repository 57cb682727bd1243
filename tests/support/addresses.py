"""Addresses and what is shown of them, by Python and by the patterns that Java has for it."""

from __future__ import annotations

from typing import Final

SHOWN: Final = [
    ("s3://bucket/lake", "s3://bucket/lake"),
    ("s3://bucket/a@b/lake", "s3://bucket/a@b/lake"),
    ("ftp://me:hush@host/lake", "ftp://***@host/lake"),
    ("ftp://me:hu@sh@host/lake", "ftp://***@host/lake"),
    ("ftp://me:hu/sh@host/lake", "ftp://***@host/lake"),
    ("s3a://me:hu/sh@hush@host/lake", "s3a://***@host/lake"),
    ("s3://me:12/hush@host/lake", "s3://***@host/lake"),
    ("...s3://me:hush@host/lake", "...s3://***@host/lake"),
    ("https://hush@host:8080/lake", "https://***@host:8080/lake"),
    ("hdfs://head:8020/lake", "hdfs://head:8020/lake"),
    ("hdfs://head:8020/a@b/lake", "hdfs://***@b/lake"),  # "head" may be a user, and "8020/a" a password
    ("simplecache::s3://me:hush@bucket/lake", "simplecache::s3://***@bucket/lake"),
    ("abfss://lake@account.dfs.core.windows.net/x", "abfss://lake@account.dfs.core.windows.net/x"),
    ("abfss://lake@account:443/x@y", "abfss://lake@account:443/x@y"),
    ("abfss://lake:hush@account/x?sig=hush", "abfss://***@account/x?***"),
    ("abfss://lake@me:hush@account/x", "abfss://***@account/x"),
    ("https://host/lake?sig=hush", "https://host/lake?***"),
    ("https://host/lake?hush", "https://host/lake?***"),
    ("https://host/lake#hush", "https://host/lake#***"),
    ("/srv/why?/lake#1", "/srv/why?/lake#1"),
]
"""Addresses, and the same without their secrets."""
