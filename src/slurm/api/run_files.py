"""Small files of a run as the agent reads and writes them: what it is, its scripts, its ids.

Runs where the files are, on Python 3.6.
"""

import errno
import io
import json
import os
import re
import stat
import threading
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from slurm import rundir
from slurm.api import folders
from slurm.api.agent_error import AgentError
from slurm.model.ids import expand_array_spec
from slurm.rundir.about import checked

_ID = re.compile(r"[0-9]+([._+][0-9]+)?(;[\w.-]*)?\Z")
#: Bytes that a script, the metadata or an id of a run may have.
_MOST = 64 << 20


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """What a file of ours says; None where it is not there or not whole."""
    try:
        found = json.loads(_content(path).decode())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _content(path: str) -> bytes:
    """What is in a small file, which others may have put there."""
    with rundir.open_plain(path) as f:
        found = rundir.read_most(f, _MOST + 1)
    if len(found) > _MOST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return bytes(found)


def encode_json(found: Mapping[str, Any], default: Optional[Callable[[Any], Any]] = None) -> bytes:
    """What `read_json` gives, with a line for each entry: with its own indents json is slow."""
    text = json.dumps(found, default=default, separators=(",\n", ": "))
    return "{{\n{}\n}}\n".format(text[1:-1]).encode()


def read_text(path: str) -> str:
    """The words of a small file; "" where it is not there."""
    try:
        return _content(path).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def read_script(path: str) -> str:
    """The text of a script; whatever the locale is, and whatever bytes a path in it has."""
    return _content(path).decode("utf-8", "surrogateescape")


def write_script(path: str, text: str) -> None:
    """Write what `read_script` gives."""
    write(path, text.encode("utf-8", "surrogateescape"))


def write(path: str, data: bytes) -> None:
    """Write a file of a run; what the disk refuses is told as such."""
    try:
        rundir.write_atomically(path, data, sync=False)
    except OSError as error:
        raise AgentError("rundir", f"{path} cannot be written: {error.strerror}") from error


def write_first(path: str, data: bytes) -> bool:
    """Write a file unless it is there; it is whole as soon as it can be seen."""
    # Unique among hosts, processes and threads: all of them may be at it.
    temporary = f"{path}.{rundir.host_token()}.{os.getpid()}.{threading.get_ident()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
        os.link(temporary, path)
        return True
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)


def check_base(base: str) -> None:
    """Refuse a base directory that others could fill with files of theirs."""
    try:
        rundir.check_base(base)
    except rundir.Untrusted as error:
        words = "what lies there is executed, so nothing is submitted"
        mine = error.fix + "; or " if "chmod" in error.fix else ""
        hint = mine + "choose another directory: job_base_dir=..."
        if rundir.is_trusted(os.stat(base).st_gid):
            hint += "; or, where a group shares it, give each a folder: trust_group = true"
        raise AgentError("rundir", "{}; {}".format(error, words), [], hint) from error


def check_script(run: str, script: str) -> None:
    """Refuse to submit a script that somebody else may have written, or may change."""
    places = [run, os.path.join(run, os.path.dirname(script)), os.path.join(run, script)]
    try:
        for place in places:
            rundir.check_place(place)
    except rundir.Untrusted as error:
        text = "{}; its jobs are not submitted".format(error)
        raise AgentError("untrusted", text, [], error.fix) from error


def check_code(base: str, folder: str) -> None:
    """Refuse to start a program of a store unless base, store and program are ours alone."""
    check_base(base)
    try:
        for place in (os.path.dirname(folder), folder):
            rundir.check_place(place)
    except rundir.Untrusted as error:
        raise AgentError("untrusted", str(error), [], error.fix) from error


def read_own(folder: str, name: str, offset: int, limit: int, group: Optional[int] = None) -> bytes:
    """Bytes of a file of a run, refused where somebody else may have written it; b"": not there."""
    try:
        rundir.check_private(folder, os.stat(folder), group)
        with rundir.open_trusted(os.path.join(folder, name), group) as f:
            f.seek(offset)
            return rundir.read_most(f, limit)
    except FileNotFoundError:
        return b""
    except rundir.Untrusted as error:
        text = "{}; what lies in it is neither run nor unpickled".format(error)
        raise AgentError("untrusted", text, [], error.fix) from error
    except OSError as error:
        text = "{} of {} cannot be read: {}".format(name, folder, error.strerror)
        raise AgentError("not-found", text) from error


def open_file(folder: str, name: str, inside: bool) -> Any:
    """Open a file of a run for reading; `inside`: no path and no link may lead out of the run."""
    path = os.path.join(folder, name)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOCTTY", 0))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return io.BytesIO()  # a log may go to /dev/null; a pipe would block
    try:
        # What was opened is looked at, not what the path leads to a moment later.
        if inside and not _is_below(fd, path, folder):
            text = "{} lies outside of its run, and is not read by those who only look".format(path)
            hint = "if the run is yours, name its base: slurm logs RUN --job-base-dir BASE"
            raise AgentError("untrusted", text, [], hint)
        owner, found = os.stat(folder).st_uid, os.fstat(fd).st_uid
        if owner != os.getuid() and found != owner:
            text = "{} of user {} leads to a file of user {}, which is not read by its name".format(
                path, rundir.user_name(owner), rundir.user_name(found)
            )
            raise AgentError("untrusted", text, [], "ask the owner of the run what it printed")
    except BaseException:  # raised again
        os.close(fd)
        raise
    return os.fdopen(fd, "rb")


def _is_below(fd: int, path: str, folder: str) -> bool:
    real = os.path.realpath(path)
    found = os.stat(real)
    same = os.path.samestat(found, os.fstat(fd)) and found.st_nlink == 1
    return same and real.startswith(os.path.realpath(folder) + os.sep)


def fill_in(template: str, words: Dict[str, str], script: str) -> None:
    """Write a script: a template with words in the place of their tokens."""
    text = read_script(template)
    for token, word in words.items():
        text = text.replace(token, word)
    write_script(script, text)


def metadata(path: str) -> Dict[str, Any]:
    """What a run is; nothing where it is not there."""
    return checked(read_json(os.path.join(path, rundir.METADATA)) or {})


def plan(path: str) -> Dict[str, Any]:
    """How the parts of a run are submitted."""
    found = read_json(os.path.join(path, rundir.PARTS))
    if found is not None:
        return found
    # One job has no plan of its own.
    script = read_script(os.path.join(path, rundir.SCRIPT))
    flags = re.findall("^#SBATCH --([a-z-]+)", script, re.MULTILINE)
    cwd = str(metadata(path).get("workdir") or path)
    return {"parts": 1, "at_once": 1, "cwd": cwd, "options_set": flags}


def ids(path: str) -> Dict[str, str]:
    """The job ids of all parts that have one, by the name of the part; retries are parts, too."""
    folder = os.path.join(path, rundir.SUBMIT)
    names = [name for name in folders.names(folder) if name.endswith(".id")]
    found = {name[: -len(".id")]: read_text(os.path.join(folder, name)) for name in names}
    # What is no job id is none of ours: nobody shows it, and Slurm is not asked for it.
    return {name: job for name, job in found.items() if _ID.match(job)}


def part_ids(path: str) -> Dict[int, str]:
    """The job ids of those parts that a run was cut into."""
    return {int(name): job for name, job in ids(path).items() if name.isdigit()}


def bare(job: str) -> str:
    """A job id without the name of a cluster."""
    return job.partition(";")[0]


# ---- calls that were cancelled before their part was submitted ----------------------------------


def cancel_unsent(path: str, spec: str, reason: str = "") -> None:
    """Write down that these calls, `*` for all, must not run; their parts may not be there yet."""
    name = os.path.join(path, rundir.CANCELLED)
    try:
        rundir.append(name, f"{spec} {reason}\n".encode(), sync=True)
    except OSError as error:
        raise AgentError("rundir", f"{name} cannot be written: {error.strerror}") from error


def cancelled(path: str) -> List[Tuple[str, str]]:
    """What was written down of that: the calls, and a reason or ""."""
    lines = read_text(os.path.join(path, rundir.CANCELLED)).split("\n")
    found = [line.partition(" ") for line in lines if line]
    return [(spec, reason) for spec, _, reason in found]


def gone(path: str, part: int) -> Tuple[Set[int], int]:
    """Those calls of a part that were cancelled before it was submitted, and how many it has."""
    found = cancelled(path)
    parts = (metadata(path).get("parts") or []) if found else []
    offset, size = (parts[part][1], parts[part][2]) if parts else (0, 1)
    indexes = set(range(offset, offset + size))
    if any(spec == "*" for spec, _ in found):
        return indexes, size
    asked = [index for spec, _ in found for index in expand_array_spec(spec)]
    return indexes.intersection(asked), size


class Found(NamedTuple):
    """The jobs of some calls of a run, and whether all of them were submitted."""

    ids: List[str]
    whole: bool


def ids_of(path: str, calls: Sequence[int]) -> Optional[Found]:
    """The ids of the jobs of calls; None while a part of theirs has yet to be submitted."""
    parts = metadata(path).get("parts") or []
    known, wanted = part_ids(path), set(calls)
    found, whole = [], True  # type: List[str], bool
    for number, offset, size in parts or [(0, 0, 1)]:
        mine = sorted(wanted.intersection(range(offset, offset + size)))
        if mine and number not in known:
            whole = False
            if not gone(path, number)[0].issuperset(mine):
                return None
        elif mine:
            job = bare(known[number])
            every = not parts or len(mine) == size
            found += [job] if every else ["{}_{}".format(job, i - offset) for i in mine]
    return Found(found, whole)


def is_gone(path: str, part: int) -> bool:
    """Whether all calls of a part were cancelled before it was submitted: it never will be."""
    calls, size = gone(path, part)
    return len(calls) == size
