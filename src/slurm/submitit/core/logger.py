"""The logger "submitit"; nothing is configured before a job, or somebody who asks, does so."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

#: What `SUBMITIT_LOG_LEVEL` says: a level by name or number, or NOCONFIG.
LEVEL = os.environ.get("SUBMITIT_LOG_LEVEL", "INFO").upper()

CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(name)s: %(message)s"}},
    "handlers": {
        "out": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout", "formatter": "plain"}
    },
    "loggers": {"submitit": {"handlers": ["out"], "level": "INFO"}},
}


def get_logger() -> logging.Logger:
    """The logger of all messages of the drop-in."""
    return logging.getLogger("submitit")


def configure() -> None:
    """Let messages appear in the job's standard output, unless the user has other plans."""
    logger = get_logger()
    if LEVEL == "NOCONFIG" or logger.handlers:
        return
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter(CONFIG["formatters"]["plain"]["format"]))
    logger.addHandler(handler)
    logger.setLevel(int(LEVEL) if LEVEL.isdigit() else LEVEL)


def exception(*args: Any) -> None:
    """Log an error with its traceback."""
    get_logger().exception(*args)


def warning(*args: Any) -> None:
    """Log a warning."""
    get_logger().warning(*args)
