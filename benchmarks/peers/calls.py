"""The functions that every library runs. What they import, each job of each library would."""


def noop(item: int) -> int:
    """Give the item back."""
    return item


def join(left: int, right: int) -> int:
    """One node of a graph."""
    return left + right


def die(how: str, note: str) -> None:
    """Tell who and when, then die in this way; else wait to be killed."""
    import os
    import time

    job = os.environ.get("SLURM_JOB_ID", "none")
    with open(note + ".new", "w") as f:
        # The clock of this host, which the client shares.
        f.write(f"{os.getpid()} {job} {time.monotonic()}\n")
    os.rename(note + ".new", note)
    if how == "exception":
        raise ValueError("as asked")
    if how == "exit":
        os._exit(3)
    if how == "memory":
        hoard = []
        while True:
            hoard.append(bytearray(50_000_000))
    time.sleep(100)
