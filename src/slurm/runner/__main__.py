"""The entry of the runner: started by its path in a job, or as `python -m slurm.runner RUN`."""

import gc
import sys

_USAGE = """usage: python -m slurm.runner RUN

Runs the function of a job by hand: RUN is the run's directory. SLURM_ARRAY_TASK_ID=3 chooses an
element of an array. The outcome is recorded in the run.
"""


def _main() -> int:
    if not __package__:
        # Started by path: the folder above `slurm` takes the place of this script's own folder, so
        # that neither the user's directory nor an installed package can stand in for the SDK.
        sys.path[0] = __file__.rsplit("/", 3)[0]
    if sys.version_info < (3, 8):
        sys.stderr.write(
            "slurm-sdk: this Python is {}.{}; the runner needs 3.8 or newer\n".format(
                *sys.version_info[:2]
            )
        )
        return 78
    if sys.argv[1:] in (["-h"], ["--help"]):
        sys.stdout.write(_USAGE)
        return 0
    # Nothing that is imported here is ever garbage: looking for it takes a quarter of our time.
    gc.disable()
    # The SDK's own copy is compiled once per node Python, whatever the user's shell says of it.
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    from slurm.runner.run import main

    sys.dont_write_bytecode = writes
    gc.freeze()
    gc.enable()
    return main(sys.argv)


if __name__ == "__main__":
    sys.exit(_main())
