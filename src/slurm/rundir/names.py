"""What lies where: the names of the files and folders of a run, and of the base directory."""

import functools
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

# ---- a run --------------------------------------------------------------------------------------

#: What the client writes before the submission.
SCRIPT = "script.sh"
METADATA = "metadata.json"
ENVIRONMENT = ".slurm_environment.json"
FUNCTION = "function.bin"
ARGUMENTS = "arguments.bin"
SHARED = "shared.bin"
CALLBACKS = "callbacks.bin"
CACHE_KEYS = "cache.txt"
#: What the files looked like that its keys speak of and its jobs read where they lie.
CACHE_FILES = "cache_files.json"
#: What the client's modules held that its keys speak of, and whether a job found something else.
CACHE_VALUES = "cache_values.json"
CACHE_VOID = "cache_void"

#: How its parts are submitted: the plan, the small job that submits the next part, the calls that
#: were cancelled before their part was; and what is retried when, with the small job that does so.
SUBMIT = "submit"
PARTS = "submit/parts.json"
NEXT = "submit/next.sh"
CANCELLED = "submit/cancelled"
RETRY = "submit/retry.json"
GUARD = "submit/guard.sh"

#: What its jobs write.
LOGS = "logs"
RESULTS = "results"
EVENTS = "events"
VALUES = "values"
BEATS = "beats"
FRAMES = "frames"
STEPS = "steps.txt"

#: The user's own folders.
OUTPUT = "output"
CHECKPOINT = "checkpoint"
SHARED_FOLDER = "shared"

#: The runs below a workflow; what an allocation or a block of workers is told, and its calls.
TASKS = "tasks"
INBOX = "inbox"
CALLS = "calls"

#: The folders that every run has from the start.
FOLDERS = (LOGS, RESULTS, EVENTS, VALUES, SUBMIT, BEATS)

# ---- the base directory -------------------------------------------------------------------------

BASE_IDS = ".ids"
BASE_EVENTS = ".events"
BASE_SDK = ".sdk"
BASE_CACHE = ".cache"
BASE_ENVIRONMENTS = ".environments"
BASE_WHEELS = ".wheels"
BASE_SNAPSHOTS = ".snapshots"
BASE_PYTHONS = ".pythons"
BASE_TOOLS = ".tools"
BASE_IMAGES = ".images"

#: All that lies in a base directory besides runs.
BASE_FOLDERS = (
    BASE_IDS,
    BASE_EVENTS,
    BASE_SDK,
    BASE_CACHE,
    BASE_ENVIRONMENTS,
    BASE_WHEELS,
    BASE_SNAPSHOTS,
    BASE_PYTHONS,
    BASE_TOOLS,
    BASE_IMAGES,
)

#: In the folder of a snapshot: captured code in one file.
CODE = "code"

#: In the folder of an environment: what it is made of, the whole one, and when it was last used.
RECIPE = "recipe.json"
CURRENT = "current"
USED = "used"

#: How many characters a cache key has.
KEY_LENGTH = 40

# ---- what stands in scripts ---------------------------------------------------------------------

#: The runner's exit code when the result cannot be written (EX_IOERR of sysexits).
EXIT_NOT_WRITTEN = 74
#: The script's where the node has another, empty, directory in the run's place (EX_OSFILE).
EXIT_NOT_VISIBLE = 72

#: Stands in the script of a later part for the id of the part before it, until that is known.
PREVIOUS = "@previous@"
#: Stands in the script of a guard for the name of the part that it guards.
TOKEN = "@part@"

_IDS = "@ids:"

#: How the names of the small jobs end that submit what comes next, and what is due again.
NEXT_JOB = ":next"
RETRY_JOB = ":retry"
SMALL_JOBS = (NEXT_JOB, RETRY_JOB)


def ids_token(run: str, calls: str) -> str:
    """Stands in a dependency for the ids of calls of a run, until they are known.

    `calls` are their indexes, as in `0-5,9`; a comma would part the dependency there.
    """
    return _IDS + run + "=" + calls.replace(",", "+") + "@"


def awaited(script: str) -> "List[Tuple[str, str]]":
    """The runs for whose ids a script waits, each with the indexes of the calls."""
    tokens = [rest.partition("@")[0].partition("=") for rest in script.split(_IDS)[1:]]
    return [(run, calls.replace("+", ",")) for run, _, calls in tokens]


# ---- a part of a run ----------------------------------------------------------------------------

#: The owner of a part that must not run: its sender died before it was submitted.
NOBODY = "nobody"


def script_name(part: int) -> str:
    """The script of a part."""
    return SCRIPT if part == 0 else f"{SUBMIT}/{part}.sh"


def intent_name(part: object) -> str:
    """The file that says a submission of this part is under way."""
    return f"{SUBMIT}/{part}.intent"


def id_name(part: object) -> str:
    """The file that holds the job id of this part."""
    return f"{SUBMIT}/{part}.id"


def pump_name(part: int) -> str:
    """The script of the small job that submits this part when its turn has come."""
    return f"{SUBMIT}/{part}.next.sh"


def journal_name(index: int) -> str:
    """Where a workflow writes down what it submits; of a map of workflows each its own."""
    return f"journal/{index}.jsonl"


def stop_name(index: int) -> str:
    """The file that tells a workflow to submit nothing more."""
    return f"{SUBMIT}/{index}.stopped"


def no_retry_name(index: int) -> str:
    """The file that says that a call is not retried any more."""
    return f"{SUBMIT}/{index}.noretry"


def claim_name(part: object) -> str:
    """The symbolic link by which a job claims this part; its target is the job id."""
    return f"{SUBMIT}/{part}.claim"


def begun_name(part: object) -> str:
    """The file in which each element of an array has a byte that says whether it has begun."""
    return f"{SUBMIT}/{part}.begun"


def none_begun(size: int) -> bytes:
    """The content of that file before anything has begun; text, which bash can read."""
    return b"." * size


# ---- logs ---------------------------------------------------------------------------------------


def stdout_pattern(array: bool) -> str:
    """Where the scheduler writes a job's standard output, with the scheduler's own patterns."""
    return f"{LOGS}/%A_%a.out" if array else f"{LOGS}/%j.out"


def stderr_pattern(array: bool) -> str:
    """Where the scheduler writes a job's standard error."""
    return f"{LOGS}/%A_%a.err" if array else f"{LOGS}/%j.err"


# ---- this host ----------------------------------------------------------------------------------

_PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-"


@functools.lru_cache(maxsize=1)
def host_token() -> str:
    """Names this host and this boot: one segment file has one kernel to order its writers."""
    name = os.uname().nodename.split(".")[0]
    host = "".join(letter if letter in _PLAIN else "_" for letter in name) or "host"
    return f"{host}-{boot_id()[:8]}"


def boot_id() -> str:
    """Changes when the host reboots; `0` where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f.read().strip()
    except OSError:
        return "0"
