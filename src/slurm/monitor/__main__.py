"""`python -m slurm.monitor serve`: the exporter where nothing but Python and Slurm is installed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from slurm.errors import SlurmError
from slurm.monitor.serving import Serving, rest_arguments, serve
from slurm.reach import open_backend


def main() -> int:
    """Serve this machine's Slurm; the same as `slurm monitor serve`."""
    parser = argparse.ArgumentParser(prog="python -m slurm.monitor")
    parser.add_argument("verb", choices=["serve"])
    default = Serving()
    for name, kind in (
        *(("address", str), ("port", int), ("interval", float), ("stale_after", float)),
        *(("top", int), ("per_job", int), ("web_config", Path)),
    ):
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=kind, default=getattr(default, name))
    parser.add_argument("--rest")
    parser.add_argument("--token-file", type=Path)
    given = vars(parser.parse_args())
    given.pop("verb")
    try:
        backend = open_backend(rest_arguments(given.pop("rest"), given.pop("token_file")))
        serve(backend, Serving(**given), lambda s: _say(s.url))
    except SlurmError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _say(url: str) -> None:
    sys.stderr.write(f"serving {url}\n")


if __name__ == "__main__":
    sys.exit(main())
