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


def test_the_log_of_spark_names_addresses_without_secrets(spark: SparkSession) -> None:
    """The log of the Spark that runs: its line for a warning, and that stderr gets it."""
    log4j: Any = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    text = "read s3a://me:hush/hush@hush@bucket/lake?token=hushhush and abfss://lake@account/x"
    event = log4j.core.impl.Log4jLogEvent.newBuilder()
    event = event.setLoggerName("org.apache.spark.test").setLevel(log4j.Level.WARN)
    event = event.setMessage(log4j.message.SimpleMessage(text)).build()
    settings = log4j.LogManager.getContext(False).getConfiguration()
    (appender,) = settings.getRootLogger().getAppenders().values()
    assert appender.getTarget().toString() == "SYSTEM_ERR"
    line = appender.getLayout().toSerializable(event)
    assert line.strip() == "spark: WARN test: read s3a://***@bucket/lake?*** and abfss://lake@account/x"


def test_the_log_of_spark_has_the_same_pattern() -> None:
    (line,) = [line for line in LOGGING.read_text().splitlines() if line.startswith("appender.stderr.layout.pattern")]
    pattern = SECRETS.replace("\\", "\\\\")
    assert line.endswith(f"%replace{{%m%n%ex{{short}}}}{{{pattern}}}{{***}}")
