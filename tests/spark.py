"""A session of Spark on this machine that starts quickly and serves tests with few rows."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests import programs

QUICK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    # Each join would take 32 MiB for its few rows.
    "spark.buffer.pageSize": "1m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The description of each query for the UI, which is off.
    "spark.sql.ui.explainMode": "simple",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
    # Compiling takes longer than these few rows.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A short program spends half of its time on reading and verifying classes.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m "
        "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
        # Memory that grows step by step is collected at each step.
        "-Xms1500m -XX:MetaspaceSize=300m"
    ),
    # Each file would have a file of checksums, and a process that sets its permissions.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}


def require_spark() -> None:
    """Skip the test if PySpark or Java is not installed."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    if "JAVA_HOME" not in os.environ:
        programs.find("java")


@contextmanager
def quick_session(settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Yield a session with some more settings; the test is skipped if PySpark or Java is not
    installed."""
    require_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # Its workers need the packages of this Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for name, value in (QUICK | dict(settings or {})).items():
        builder = builder.config(name, value)
    with tempfile.TemporaryDirectory() as warehouse, warnings.catch_warnings():
        builder = builder.config("spark.sql.warehouse.dir", warehouse)
        # The warning is about its pandas API, which nothing here uses.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        session = builder.getOrCreate()
        gateway: Any = SparkContext._gateway
        try:
            yield session
        finally:
            session.stop()
            # The next session must start its own Java with its own memory, or fail without it.
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(60)
            SparkContext._gateway = SparkContext._jvm = None
