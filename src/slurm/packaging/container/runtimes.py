"""How each runtime of a cluster starts Python in a container: text for the job's script, pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from slurm.errors import PackagingError
from slurm.packaging.container.engines import is_file
from slurm.rendering import shell_quote

#: Runtimes in the order in which they are looked for on a cluster.
RUNTIMES = ("pyxis", "apptainer", "podman", "oci")

#: Variables that a container sees of the job around it, beside those that the user names. The
#: image's own PATH, HOME and library paths stay as they are.
PREFIXES = (
    "SLURM", "SRUN_", "PMI", "OMPI_", "UCX_", "NCCL_", "NVIDIA_", "CUDA_VISIBLE_", "ROCR_VISIBLE_",
    "HIP_VISIBLE_", "ZE_AFFINITY_", "GPU_DEVICE_",
)  # fmt: skip
NAMES = (
    "MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "OMP_NUM_THREADS",
    "PYTHONUNBUFFERED", "PYTHONHASHSEED", "TZ",
)  # fmt: skip

#: Folders of the image that a working directory of the same name must not cover.
SYSTEM = (
    "bin",
    "boot",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "proc",
    "run",
    "sbin",
    "sys",
    "usr",
)


@dataclass(frozen=True)
class Container:
    """A container as a job starts it."""

    image: str
    runtime: str
    python: str = "python3"
    #: A Python of the node itself.
    outside: str = "python3"
    #: `SOURCE:TARGET` or `SOURCE:TARGET:ro`, beside the base directory and the working directory.
    mounts: tuple[str, ...] = ()
    #: Folders with code of the user's, which the container sees under the same names.
    code: tuple[str, ...] = ()
    #: Where the function runs, inside; None: in the working directory of the job.
    workdir: str | None = None
    #: Variables of the user's, by name; the script has set them.
    names: tuple[str, ...] = ()
    gpus: bool = False
    tls_verify: bool = True
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Start:
    """How a script starts Python in a container: lines before, words of a launcher or of srun."""

    setup: tuple[str, ...] = ()
    launch: tuple[str, ...] = ()
    srun: tuple[str, ...] = ()


def start(container: Container) -> Start:
    """The start of a container by its runtime."""
    made = _START[container.runtime](container)
    return replace(made, setup=(_door(container), *made.setup))


def _door(given: Container) -> str:
    """Lets the container have commands of Slurm run: workflows submit from inside; see `door`."""
    serve = f'{shell_quote(given.outside)} "$SLURM_SDK_ROOT/slurm/api/door.py"'
    return "\n".join(
        [
            "unset SLURM_SDK_DOOR",
            'if [ -z "${SLURM_ARRAY_TASK_ID:-}" ] &&',
            '  sdk_litter=$(mktemp -d "${TMPDIR:-/tmp}/slurm-sdk-door-XXXXXX"); then',
            "  export SLURM_SDK_DOOR=$sdk_litter",
            '  mkfifo "$SLURM_SDK_DOOR/names"',
            '  ( trap "" USR1 USR2; exec 3<> "$SLURM_SDK_DOOR/names"',
            "    while kill -0 $$; do",
            "      read -r -t 3 sdk_name <&3 || continue",
            f'      {serve} "$SLURM_SDK_DOOR" "$sdk_name" &',
            "    done ) < /dev/null > /dev/null 2>&1 &",
            "fi",
        ]
    )


# ---- runtimes that a process of the job starts --------------------------------------------------


def _podman(given: Container) -> Start:
    tls = [] if given.tls_verify else ["--tls-verify=false"]
    image = shell_quote(given.image)
    pull = " ".join(["podman pull --quiet", *tls, image])
    words = ["podman run --rm --network=host --ipc=host --pid=host --log-driver=none"]
    words += ["--security-opt=label=disable", "--pull=never"]
    if given.gpus:
        words.append("--device=nvidia.com/gpu=all")
    words += map(shell_quote, given.extra)
    text = [
        *_variables(given, 'sdk_words+=("--env=$sdk_name")'),
        *_mounts(given, 'sdk_words+=("--volume=$1:$2${3:+:$3}")'),
        f"sdk_words+=({_workdir(given, 'workdir')})",
        "# An ordinary user keeps the own number inside: files belong to the same user there.",
        'if [ "$UID" -ne 0 ]; then',
        "  sdk_words+=(--userns=keep-id)",
        "else",
        "  # A container of root would leave the control group of the job, and its memory limit.",
        "  while IFS=: read -r _ sdk_name sdk_group; do",
        "    case $sdk_name:$sdk_group in",
        '      freezer:*/job_*) sdk_words+=("--cgroup-parent=$sdk_group") ;;',
        "    esac",
        "  done < /proc/self/cgroup",
        "fi",
        "# One process of a node pulls, the others wait for it.",
        f"if ! podman image exists {image}; then",
        '  sdk_lock="${TMPDIR:-/tmp}/slurm-sdk-pull-$UID"',
        '  [ -e "$sdk_lock" ] || ( umask 077; set -C; : > "$sdk_lock" ) 2> /dev/null || :',
        "  # Where somebody else made that file first, each process pulls by itself.",
        '  [ -O "$sdk_lock" ] && [ ! -L "$sdk_lock" ] || sdk_lock=$(mktemp)',
        f"  ( flock 9; podman image exists {image} || {pull} >&2 ) \\",
        '    9>> "$sdk_lock" || {',
        f"    echo {shell_quote(f'slurm-sdk: the image {given.image} could not be pulled')} >&2",
        "    exit 125; }",
        "fi",
        "# The container is no child of this process: Python ends itself when this one is gone.",
        "export SLURM_SDK_OWNER=$$",
        f'exec {" ".join(words)} --env=SLURM_SDK_OWNER "${{sdk_words[@]}}" {image} "$@"',
    ]
    return _launcher(text)


def _apptainer(given: Container) -> Start:
    image = given.image if is_file(given.image) else f"docker://{given.image}"
    words = ["--quiet exec --cleanenv --no-home", *([] if given.tls_verify else ["--no-https"])]
    words += [*(["--nv"] if given.gpus else []), *map(shell_quote, given.extra)]
    text = [
        "sdk_program=apptainer",
        'command -v "$sdk_program" > /dev/null || sdk_program=singularity',
        *_variables(
            given,
            'export "APPTAINERENV_$sdk_name=${!sdk_name}" "SINGULARITYENV_$sdk_name=${!sdk_name}"',
        ),
        *_mounts(given, 'sdk_words+=("--bind=$1:$2${3:+:$3}")'),
        f"sdk_words+=({_workdir(given, 'pwd')})",
        f'exec "$sdk_program" {" ".join(words)} "${{sdk_words[@]}}" {shell_quote(image)} "$@"',
    ]
    return _launcher(text)


def _launcher(text: Sequence[str]) -> Start:
    """Text that each process of the job runs by itself, for each has variables of its own."""
    whole = "\n".join(["", *text, ""])
    return Start(
        setup=(f"sdk_enter={shell_quote(whole)}",),
        launch=("bash", "-c", '"$sdk_enter"', "container"),
    )


# ---- runtimes that Slurm starts -----------------------------------------------------------------


def _pyxis(given: Container) -> Start:
    setup = ["sdk_mounts=''", *_mounts(given, "sdk_mounts=$sdk_mounts,$1:$2${3:+:$3}")]
    srun = [
        shell_quote(f"--container-image={enroot_name(given.image)}"),
        '"--container-mounts=${sdk_mounts#,}"',
        _workdir(given, "container-workdir"),
        "--no-container-mount-home",
        "--container-env=" + ",".join((*NAMES, *given.names)),
        *map(shell_quote, given.extra),
    ]
    return Start(setup=("\n".join(setup),), srun=tuple(srun))


def enroot_name(image: str) -> str:
    """An image as enroot writes it: the registry before `#`, a digest in the place of the tag."""
    if is_file(image):
        return image
    name = image.replace("@sha256:", ":sha256:")
    host, slash, rest = name.partition("/")
    return f"{host}#{rest}" if slash and ("." in host or ":" in host) else name


def _oci(given: Container) -> Start:
    if given.gpus:
        raise PackagingError(
            "runtime='oci' brings no GPUs: Slurm leaves them to hooks of the administrator",
            hint="use another runtime, or gpus=False where such hooks are there",
        )
    values = {"IMAGE": given.image, "MOUNTS": "\n".join(given.mounts)}
    values["CODE"] = "\n".join(given.code)
    values["WORKDIR"] = given.workdir or ""
    values["TLS"] = "yes" if given.tls_verify else "no"
    lines = [f"export SLURM_SDK_OCI_{name}={shell_quote(value)}" for name, value in values.items()]
    lines += [
        "sdk_words=()",
        *_variables(given, 'sdk_words+=("$sdk_name")')[1:],
        'sdk_export=$(IFS=,; echo "${sdk_words[*]}")',
        # The bundle is one file that points to the image's unpacked root.
        f'sdk_bundle=$({shell_quote(given.outside)} "$SLURM_SDK_ROOT/slurm/runner/bundle.py")',
    ]
    srun = ('"--container=$sdk_bundle"', '"--export=$sdk_export"', *map(shell_quote, given.extra))
    return Start(setup=("\n".join(lines),), srun=srun)


_START: dict[str, Callable[[Container], Start]] = {
    "pyxis": _pyxis,
    "apptainer": _apptainer,
    "podman": _podman,
    "oci": _oci,
}


# ---- pieces of text -----------------------------------------------------------------------------


def _variables(given: Container, act: str) -> list[str]:
    """A loop over the variables that the container is to see; values are in no command line."""
    names = " ".join([*(f"${{!{prefix}@}}" for prefix in PREFIXES), *NAMES, *given.names])
    return [
        "sdk_words=()",
        f"for sdk_name in {names}; do",
        f'  [ -z "${{!sdk_name+x}}" ] || {act}',
        "done",
    ]


def _mounts(given: Container, act: str) -> list[str]:
    """Mount the base directory, what was asked for, and the working directory: each place once."""
    lines = [
        "sdk_seen=:",
        "sdk_mount() {",
        '  case $sdk_seen in *":$2:"*) return ;; esac',
        "  sdk_seen=$sdk_seen$2:",
        f"  {act}",
        "}",
        'sdk_mount "$SLURM_SDK_BASE" "$SLURM_SDK_BASE"',
        '[ ! -d "${SLURM_SDK_DOOR:-}" ] || sdk_mount "$SLURM_SDK_DOOR" "$SLURM_SDK_DOOR"',
    ]
    lines += [_mount(mount) for mount in given.mounts]
    if given.workdir is None:
        # Unless it is a folder of the image as well.
        system = " | ".join(f"/{name}/*" for name in SYSTEM)
        lines += [
            'case "$PWD/" in',
            f'  "$SLURM_SDK_BASE"/* | // | *[:,]* | {system}) ;;',
            '  *) sdk_mount "$PWD" "$PWD" ;;',
            "esac",
        ]
    return lines + [_mount(f"{folder}:{folder}:ro") for folder in given.code]


def _mount(mount: str) -> str:
    return " ".join(["sdk_mount", *map(shell_quote, mount.split(":"))])


def _workdir(given: Container, flag: str) -> str:
    """The flag that says where the function runs: as asked for, else where the job's script is."""
    return f'"--{flag}=$PWD"' if given.workdir is None else shell_quote(f"--{flag}={given.workdir}")


def check_mount(mount: str) -> str:
    """`SOURCE:TARGET[:ro]`, or one path for both; refuse what runtimes could not express."""
    source, *rest = mount.split(":")
    target = rest[0] if rest else source
    flags = rest[1] if len(rest) > 1 else None
    absolute = source.startswith("/") and target.startswith("/")
    odd = "," in mount or "\n" in mount
    if len(rest) > 2 or not absolute or flags not in (None, "ro", "rw") or odd:
        raise PackagingError(
            f"mounts has {mount!r}, which is not SOURCE:TARGET or SOURCE:TARGET:ro",
            hint='write absolute paths of the cluster without comma: mounts=["/data:/data:ro"]',
        )
    if target == "/":
        raise PackagingError(f"mounts has {mount!r}: it would cover the whole image")
    return ":".join([source, target, *([flags] if flags else [])])
