"""From a laptop over SSH: `python over_ssh.py LOGIN_NODE`; without a name it runs here."""

import sys
import tempfile
from pathlib import Path

from slurm import Cluster, File, task

SCHEDULERS = ("embedded", "local")


@task(time="10min", mem="300MiB")
def count_words(text: File) -> dict[str, int]:
    """The file was sent along, once; here it is a path like any other."""
    words = Path(text).read_text().split()
    return {word: words.count(word) for word in sorted(set(words))}


@task(time="10min")
def longest(counts: dict[str, int]) -> str:
    return max(counts, key=len)


where = sys.argv[1] if len(sys.argv) > 1 else "local"
# A `Host` of ~/.ssh/config will do as a name. Nothing has to be installed there.
cluster = Cluster(where) if where in SCHEDULERS else Cluster(hostname=where)

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        text.write_text("the job goes on when the laptop sleeps")
        with cluster:
            counts = count_words(File(text))
            word = longest(counts)  # reads the value on the cluster
        print("counted:", counts.result(timeout=120)["the"], "times 'the'")

    # The connection may have been closed meanwhile; the run is found again by its name.
    print("longest word:", cluster.attach(word.run).result(timeout=120))
