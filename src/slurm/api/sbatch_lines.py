"""Reads the options out of a script's `#SBATCH` lines the way sbatch does: text in, table out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

# sbatch's short forms of the options that we know.
SHORT = {
    "A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold",
    "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses", "m": "distribution",
    "M": "clusters", "N": "nodes", "n": "ntasks", "o": "output", "O": "overcommit",
    "p": "partition", "q": "qos", "Q": "quiet", "s": "oversubscribe", "S": "core-spec",
    "t": "time", "v": "verbose", "w": "nodelist", "W": "wait", "x": "exclude",
}  # fmt: skip

# Options that never take the next word as their value.
FLAGS = frozenset(
    [
        "contiguous",
        "exclusive",
        "get-user-env",
        "hold",
        "no-kill",
        "no-requeue",
        "overcommit",
        "oversubscribe",
        "parsable",
        "quiet",
        "reboot",
        "requeue",
        "spread-job",
        "test-only",
        "use-min-nodes",
        "verbose",
        "wait",
        "nice",
        "ignore-pbs",
    ]
)

# Environment variables of sbatch that stand above the script's own lines.
ENVIRONMENT = {
    "SBATCH_ARRAY_INX": "array", "SBATCH_EXCLUSIVE": "exclusive", "SBATCH_EXPORT": "export",
    "SBATCH_GPUS": "gpus", "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task", "SBATCH_GRES": "gres",
    "SBATCH_JOB_NAME": "job-name", "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_NODE": "mem", "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_OPEN_MODE": "open-mode", "SBATCH_OUTPUT": "output", "SBATCH_ERROR": "error",
    "SBATCH_REQUEUE": "requeue", "SBATCH_SIGNAL": "signal", "SBATCH_TIMELIMIT": "time",
}  # fmt: skip


# What sbatch takes for white space; Python knows more.
_BLANKS = frozenset(" \t\n\v\f\r")


class BadRequest(ValueError):
    """A request that cannot be understood or kept; the text is for the user."""


def read_options(script: str) -> dict[str, str]:
    """The options of a script, long names without dashes; a bare flag has the value "".

    Reading stops at the first line that is neither blank nor a comment. A later line wins.
    """
    options: dict[str, str] = {}
    # Not splitlines: bash and sbatch end a line at a newline only.
    for line in script.split("\n"):
        text = line.strip("".join(_BLANKS))
        if text and not text.startswith("#"):
            break
        if line.startswith("#SBATCH") and line[7:8] in _BLANKS:
            for name, value in _read_words(split_words(line[7:])):
                _set(options, name, value)
    return options


def add_environment(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The options with those that `SBATCH_*` variables set: these win, as with sbatch."""
    result = dict(options)
    for variable, name in ENVIRONMENT.items():
        if variable in environ:
            _set(result, name, environ[variable])
    return result


def _set(options: dict[str, str], name: str, value: str) -> None:
    if name in ("requeue", "no-requeue"):
        options.pop("requeue", None)
        options.pop("no-requeue", None)
    options[name] = value


def split_words(text: str) -> list[str]:
    """Split a line into words the way sbatch does, which is not quite the way a shell does.

    A backslash takes the quoting power from the next letter, in all quotes, but a blank behind it
    still ends the word; a `#` outside of quotes begins a comment even within a word.
    """
    words: list[str] = []
    word: list[str] | None = None
    quote = ""
    letters = iter(text)
    for letter in letters:
        literal = letter == "\\"
        if literal:
            letter = next(letters, "")
        if not quote and letter in _BLANKS:
            if word is not None:
                words.append("".join(word))
            word = None
            continue
        if not quote and not literal and letter == "#":
            break
        word = [] if word is None else word
        if not literal and letter in (quote or "'\""):
            quote = "" if quote else letter
            continue
        word.append(letter)
    if word is not None:
        words.append("".join(word))
    return words


def _read_words(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            if not equals and name not in FLAGS and rest and not rest[0].startswith("-"):
                value = rest.pop(0)
            yield name, value
        elif word.startswith("-") and len(word) > 1:
            name, value = SHORT.get(word[1], word[1]), word[2:]
            if not value and name not in FLAGS and rest and not rest[0].startswith("-"):
                value = rest.pop(0)
            yield name, value
        else:
            raise BadRequest(f"Invalid directive found in batch script: {word}")
