"""Programs that tests start in processes of their own, because they are killed or need a Spark of their own.

python -m tests.support.spark_programs follow MASTER LAKE FOLDER   stream a lake into FOLDER/rows, until killed
"""

from __future__ import annotations

import sys

from eventd.audit.spark.session import open_session
from tests.support.spark import MEMORY, QUICK


def follow(master: str, lake: str, folder: str) -> None:
    with open_session(master, app="follow", memory=MEMORY, conf=QUICK) as spark:
        rows = spark.readStream.format("eventd").option("lake", lake).option("maxRowsPerBatch", "10").load()
        rows = rows.select("node", "number")
        writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        writer.start(f"{folder}/rows").awaitTermination()


if __name__ == "__main__":
    {"follow": follow}[sys.argv[1]](*sys.argv[2:])
