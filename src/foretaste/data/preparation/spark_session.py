"""A Spark session, started if none is running, and the translation of its errors."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from foretaste._util.system import free_bytes
from foretaste.data.config import FileFormat, PrepareConfig, memory_bytes
from foretaste.data.preparation.spark_sources import open_named
from foretaste.data.sources.source import Source
from foretaste.errors import InputError, MissingExtraError, SettingError

_ADVICE = (
    "install it (apt-get install openjdk-17-jre-headless, or brew install openjdk@17) or name its "
    "folder in JAVA_HOME"
)
_BESIDE_HEAP_BYTES = 512 << 20
_LEAST_HEAP_BYTES = 512 << 20

SETTINGS = {
    # A cast that does not fit is an error, and double quotes enclose names, as in DuckDB.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    # Without this setting Spark refuses nanoseconds, because it has no type for them.
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    # A cluster's own settings could split files, or silently leave out unreadable ones.
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}

_NO_CONNECTOR = re.compile(
    r'Class org\.apache\.hadoop\.fs\.[\w.]+ not found|No FileSystem for scheme "?[\w.+-]+"?'
)


class Spark:
    """The session of a preparation. As a context it stops Spark at the end if it started it."""

    def __init__(self, config: PrepareConfig) -> None:
        self._config = config
        self._starts = SparkContext._active_spark_context is None

    def __enter__(self) -> Spark:
        return self

    def __exit__(self, *error: object) -> None:
        if self._starts and "session" in vars(self):
            self.session.stop()

    @cached_property
    def session(self) -> SparkSession:
        """A session with its own settings and tables, in the running Spark or a new one.

        Raises MissingExtraError if Java is missing, SettingError if Spark cannot start.
        """
        active = SparkContext._active_spark_context
        master = self._config.spark_master
        if active is not None and master not in (None, active.master):
            raise SettingError(
                f"spark_master is {master}, and a Spark with master {active.master} is running in "
                "this process; stop it, or leave spark_master out"
            )
        # This logger would print every failed query beside the one message of foretaste.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        started = self._start_session() if self._starts else SparkSession.builder.getOrCreate()
        session = started.newSession()
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
        return session

    def open_named(self, name: str, format: FileFormat) -> Source:
        """Return the source of this name in Spark; InputError if Spark has none."""
        try:
            with translate_errors():
                return open_named(self.session, name, format)
        except InputError as error:
            raise InputError(str(error) if name in str(error) else f"{name}: {error}") from None

    def _start_session(self) -> SparkSession:
        config = self._config
        java = os.environ.get("JAVA_HOME")
        if shutil.which(Path(java, "bin", "java") if java else "java") is None:
            raise MissingExtraError(
                f"engine spark needs Java 17 or newer, and none is found; {_ADVICE}"
            )
        builder = SparkSession.builder.appName("foretaste prepare")
        for name, value in _start_settings(config).items():
            builder = builder.config(name, value)
        with tempfile.TemporaryFile() as log:
            try:
                with _stderr_to(log.fileno()):
                    return builder.getOrCreate()
            except (PySparkException, Py4JError) as error:
                log.seek(0)
                lines = log.read().decode(errors="replace").strip().splitlines()
                raise SettingError(
                    f"Spark cannot start: {lines[-1] if lines else error}. If Java is older than "
                    f"17, which Spark needs: {_ADVICE}"
                ) from None


def _start_settings(config: PrepareConfig) -> dict[str, str]:
    """Return the settings of a Spark that this process starts; Spark's files decide the rest."""
    settings = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    if config.spark_master is not None:
        settings["spark.master"] = config.spark_master
    elif config.threads is not None:
        settings["spark.master"] = f"local[{config.threads}]"
    has_own = "SPARK_CONF_DIR" in os.environ or "SPARK_HOME" in os.environ
    is_local = (config.spark_master or "local").startswith("local")
    if config.memory_limit is not None or (is_local and not has_own):
        limit = free_bytes() / 2
        if config.memory_limit is not None:
            limit = memory_bytes(config.memory_limit)
        heap = max(limit - _BESIDE_HEAP_BYTES, limit / 2)
        if heap < _LEAST_HEAP_BYTES:
            raise SettingError(
                f"memory_limit {config.memory_limit or f'{limit:.0f} bytes'} is too little for "
                "Spark, which needs 1GB; allow more, or prepare with engine duckdb"
            )
        settings["spark.driver.memory"] = f"{heap / 2**20:.0f}m"
    return settings


@contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """Redirect the stderr of processes that start within the context to a file."""
    sys.stderr.flush()
    own = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise InputError if Spark cannot read an input, SettingError if the memory limit is too low,
    OSError if the disk is full."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        message = str(error)
        if "No space left on device" in message:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        if "OutOfMemoryError" in message:
            raise SettingError(
                "memory_limit is too little for this input; allow more, or use fewer threads"
            ) from None
        if found := _NO_CONNECTOR.search(message):
            raise InputError(
                f"Spark has no connector for it ({found[0]}); name the connector's package in "
                "spark.jars.packages of Spark's settings, such as org.apache.hadoop:hadoop-aws for "
                "s3a, in the version of Spark's Hadoop"
            ) from None
        raise InputError(f"Spark cannot read it: {_reason(message)}") from None


def _reason(message: str) -> str:
    """Return the first line of Java's innermost error, which has the reason."""
    causes = re.findall(r"^(?:Caused by)?: [\w.$]+: (.+)$", message, re.MULTILINE)
    return str(causes[-1] if causes else message.strip().splitlines()[0])[:300]
