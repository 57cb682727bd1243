"""The Spark data source "eventd": ledgers from lakes, nodes and databases.

`spark.read.format("eventd")` and `spark.readStream.format("eventd")` read one ledger of one or many nodes, or the
states that nodes write to a lake. Spark finds the format if this package is installed for the Python that it starts
(`PYSPARK_PYTHON`); `register(spark)` registers it if only the code was sent to the cluster. All options:
`docs/reference/spark-source.md`.

May import: client.refusals, lake, lake.extract, log.core, net, runtime, store.engine, store.schema.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from eventd.audit.source.options import read_options
from eventd.audit.source.readers import FilteringReader, LedgerReader, LedgerStream
from eventd.audit.source.spark_columns import spark_schema
from eventd.audit.source.states import StatesReader, StatesStream, states_schema

__all__ = ["EventdSource", "register"]


class EventdSource(DataSource):
    """The Spark data source of one ledger of one or many nodes, or of node states.

    A schema given by the user selects among the columns.
    """

    @classmethod
    def name(cls) -> str:
        return "eventd"

    def schema(self) -> StructType:
        options = read_options(self.options)
        return states_schema() if options.states else spark_schema(options.book)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        if options.states:
            return StatesReader(options, schema)
        return (FilteringReader if options.push_filters else LedgerReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = read_options(self.options)
        return StatesStream(options, schema) if options.states else LedgerStream(options, schema)


def register(spark: SparkSession) -> None:
    """Register the format "eventd" in a session whose Spark cannot find it, because only the code was sent to the
    cluster."""
    spark.dataSource.register(EventdSource)
