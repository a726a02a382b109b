"""The logger "submitit"; it writes to standard output in a job, and is left alone elsewhere."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` is slow to import, and every job imports this module

if TYPE_CHECKING:
    import logging
    from typing import Any

FORMAT = "%(asctime)s %(name)s: %(message)s"
#: For `logging.config.dictConfig`, for programs that want our messages elsewhere.
CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": FORMAT}},
    "handlers": {
        "out": {
            "class": "logging.StreamHandler",
            "stream": "ext://sys.stdout",
            "formatter": "plain",
        }
    },
    "loggers": {"submitit": {"handlers": ["out"], "level": "INFO"}},
}


def get_logger() -> logging.Logger:
    """The logger of all messages of the drop-in."""
    import logging  # a job that has nothing to say does not need it

    logger = logging.getLogger("submitit")
    level = os.environ.get("SUBMITIT_LOG_LEVEL", "INFO").upper()
    in_a_job = "SUBMITIT_FOLDER" in os.environ
    if in_a_job and level != "NOCONFIG" and not logger.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter(FORMAT))
        logger.addHandler(handler)
        logger.setLevel(int(level) if level.isdigit() else level)
    return logger


def exception(*args: Any) -> None:
    """Log an error with its traceback."""
    get_logger().exception(*args)


def warning(*args: Any) -> None:
    """Log a warning."""
    get_logger().warning(*args)
