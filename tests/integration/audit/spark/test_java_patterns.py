"""The pattern by which Java masks addresses, in plans and in Spark's log, masks what the audit itself masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventd.audit.spark.session import LOGGING, SECRETS
from tests.support.addresses import SHOWN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_java_masks_the_same_in_addresses(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    pattern = jvm.java.util.regex.Pattern.compile(SECRETS)
    masked = [pattern.matcher(f"read {url} and more").replaceAll("***") for url, _ in SHOWN]
    assert masked == [f"read {expected} and more" for _, expected in SHOWN]


def test_the_log_of_spark_has_the_same_pattern() -> None:
    (line,) = [line for line in LOGGING.read_text().splitlines() if line.startswith("appender.stderr.layout.pattern")]
    pattern = SECRETS.replace("\\", "\\\\")
    assert line.endswith(f"%replace{{%m%n%ex{{short}}}}{{{pattern}}}{{***}}")
