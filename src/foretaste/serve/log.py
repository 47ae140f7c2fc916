"""The log of the service: lines of JSON on stderr."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime

from foretaste._util.documents import Json


def log(event: str, **fields: Json) -> None:
    """Write a line of JSON to stderr; it is lost if stderr cannot be written."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    try:
        sys.stderr.write(json.dumps({"time": now, "event": event, **fields}) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


class LogLines(logging.Handler):
    """Handler that writes the log records of libraries as lines of JSON."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + "".join(traceback.format_exception(*record.exc_info))
        log("log", level=record.levelname.lower(), logger=record.name, message=message)


def log_by_lines(level: int) -> None:
    """Write Uvicorn's log, from a level on, as lines of JSON."""
    logger = logging.getLogger("uvicorn")
    logger.handlers, logger.propagate = [LogLines(level)], False
    logger.setLevel(level)
