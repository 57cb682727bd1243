"""What is handed to spark-submit: the same audit, with the same arguments, on a cluster.

spark-submit … audit.py run --lake s3://audit-lake/edge --out s3://audit-lake/report
"""

from __future__ import annotations

import sys

from eventd.cli.routerctl import main

sys.argv[1:1] = ["audit"]
main()
