"""Makes the OCI bundle of a job, outside of its container: what is mounted where.

The image is unpacked once below the base directory and shared by all jobs. Slurm insists on a
folder `rootfs` in each bundle, so that of a job is empty but for links, and its configuration
mounts what lies at the top of the unpacked image into it, read-only.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from typing import Any, Dict, List, Mapping

#: Where unpacked images lie below the base directory.
IMAGES = ".images"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")


class NoBundle(Exception):
    """The image cannot be unpacked here; the text says why."""


def main(environ: Mapping[str, str]) -> int:
    """Write the bundle of this job and print where it is."""
    image, run = environ["SLURM_SDK_OCI_IMAGE"], environ["SLURM_SDK_RUN"]
    try:
        root = find_root(image, environ["SLURM_SDK_BASE"])
    except (NoBundle, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"slurm-sdk: the image {image} could not be unpacked: {error}\n")
        return 125
    workdir = environ.get("SLURM_SDK_OCI_WORKDIR") or os.getcwd()
    mounts = [environ["SLURM_SDK_BASE"], *environ.get("SLURM_SDK_OCI_MOUNTS", "").split("\n")]
    if not environ.get("SLURM_SDK_OCI_WORKDIR") and _may_mount(workdir):
        mounts.append(workdir)
    if os.path.isdir(environ.get("SLURM_SDK_DOOR", "")):
        mounts.append(environ["SLURM_SDK_DOOR"])
    code = environ.get("SLURM_SDK_OCI_CODE", "").split("\n")
    mounts += [f"{folder}:{folder}:ro" for folder in code if folder]
    who = "{}-{}".format(environ.get("SLURM_JOB_ID", "0"), environ.get("SLURM_RESTART_COUNT", "0"))
    bundle = os.path.join(run, "submit", f"oci-{who}")
    os.makedirs(bundle, exist_ok=True)
    binds = _binds(mounts)
    targets = [bind["destination"] for bind in (*binds, *_files_of_the_node())] + [_SLURMS]
    layers = lay_out(root.path, os.path.join(bundle, "rootfs"), targets)
    given = configuration(root.env, [*layers, *_SYSTEM_MOUNTS, *_files_of_the_node(), *binds])
    given["process"]["cwd"] = workdir
    with open(os.path.join(bundle, "config.json"), "w") as f:
        json.dump(given, f, indent=1)
    sys.stdout.write(bundle)
    return 0


class Root:
    """An unpacked image: its folder, and the variables that the image sets."""

    def __init__(self, path: str, env: List[str]) -> None:
        self.path = path
        self.env = env


def find_root(image: str, base: str) -> Root:
    """The unpacked image: a bundle or a folder of the user's, else unpacked here, once."""
    if os.path.isdir(image):
        try:
            with open(os.path.join(image, "config.json")) as f:
                given = json.load(f)
        except OSError:
            return Root(image, [_PATH])
        path = os.path.join(image, given.get("root", {}).get("path", "rootfs"))
        return Root(path, given.get("process", {}).get("env", [_PATH]))
    import fcntl

    home = os.path.join(base, IMAGES)
    os.makedirs(home, mode=0o700, exist_ok=True)
    name = os.path.join(home, hashlib.sha256(image.encode()).hexdigest()[:20])
    # The kernel drops the lock of a holder that dies; only a whole image gets its name.
    with open(name + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(name):
            partial = f"{name}.{os.getpid()}"
            try:
                _unpack(image, partial)
                os.rename(partial, name)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    with open(os.path.join(name, "image.json")) as f:
        return Root(os.path.join(name, "rootfs"), json.load(f) or [_PATH])


def _unpack(image: str, folder: str) -> None:
    podman = shutil.which("podman")
    if podman is None:
        raise NoBundle("podman is not here to unpack it; give the path of a bundle as the image")
    tls = [] if os.environ.get("SLURM_SDK_OCI_TLS", "yes") == "yes" else ["--tls-verify=false"]
    if subprocess.call([podman, "image", "exists", image]) != 0:
        _said([podman, "pull", "--quiet", *tls, image])
    env = json.loads(_said([podman, "image", "inspect", "--format={{json .Config.Env}}", image]))
    os.makedirs(os.path.join(folder, "rootfs"))
    with open(os.path.join(folder, "image.json"), "w") as f:
        json.dump(env, f)
    container = _said([podman, "create", "--network=none", image, "none"]).strip()
    try:
        export = subprocess.Popen([podman, "export", container], stdout=subprocess.PIPE)
        unpack = ["tar", "-x", "-C", os.path.join(folder, "rootfs")]
        code = subprocess.call(unpack, stdin=export.stdout)
        if export.stdout is not None:
            export.stdout.close()
        if export.wait() or code:
            raise NoBundle(f"podman export ended with {export.returncode}, tar with {code}")
    finally:
        with contextlib.suppress(NoBundle):
            _said([podman, "rm", "--force", container])


def _said(words: List[str]) -> str:
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=3600)
    if done.returncode:
        raise NoBundle(done.stderr.decode("utf-8", "replace").strip()[-500:])
    return done.stdout.decode()


def _may_mount(path: str) -> bool:
    """Whether a working directory may be mounted: not over a folder of the image's own."""
    parts = [part for part in path.split("/") if part]
    return bool(parts) and parts[0] not in (
        "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr",
    )  # fmt: skip


def lay_out(root: str, place: str, targets: List[str], inside: str = "") -> List[Dict[str, Any]]:
    """Make the skeleton of a root, and say what has to be mounted into it.

    A folder in which something of the job's is mounted is made anew, with its parts mounted.
    """
    os.makedirs(place, exist_ok=True)
    mounts = []  # type: List[Dict[str, Any]]
    for name in sorted(os.listdir(root)):
        source, target = os.path.join(root, name), f"{inside}/{name}"
        made = os.path.join(place, name)
        if os.path.islink(source):
            if not os.path.islink(made):
                os.symlink(os.readlink(source), made)
        elif target in _OWN:
            os.makedirs(made, exist_ok=True)
        elif os.path.isdir(source) and any(one.startswith(target + "/") for one in targets):
            mounts += lay_out(source, made, targets, target)
        elif target not in targets:
            mounts.append(_bind(f"{source}:{target}:ro"))
    return mounts


def configuration(env: List[str], mounts: List[Dict[str, Any]]) -> Dict[str, Any]:
    """The bundle's `config.json`: Slurm puts in the command and the variables of the job."""
    uid, gid = os.getuid(), os.getgid()
    names = [f"CAP_{name}" for name in _CAPABILITIES] if uid == 0 else []
    sets = ("bounding", "effective", "permitted")
    linux = {"namespaces": [{"type": "mount"}]}  # type: Dict[str, Any]
    if uid != 0:
        linux["namespaces"].append({"type": "user"})
        linux["uidMappings"] = [{"containerID": uid, "hostID": uid, "size": 1}]
        linux["gidMappings"] = [{"containerID": gid, "hostID": gid, "size": 1}]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": uid, "gid": gid},
            "args": ["python3"],
            "env": env,
            "capabilities": dict.fromkeys(sets, names),
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "mounts": mounts,
        "linux": linux,
    }


def _binds(mounts: List[str]) -> List[Dict[str, Any]]:
    """Each place once: the first that names it counts."""
    found = {}  # type: Dict[str, Dict[str, Any]]
    for mount in filter(None, mounts):
        bound = _bind(mount)
        found.setdefault(bound["destination"], bound)
    return list(found.values())


def _bind(mount: str) -> Dict[str, Any]:
    source, _, rest = mount.partition(":")
    target, _, flags = rest.partition(":")
    options = ["rbind", "ro" if flags == "ro" else "rw"]
    return {"destination": target or source, "type": "bind", "source": source, "options": options}


def _files_of_the_node() -> List[Dict[str, Any]]:
    names = ("/etc/hosts", "/etc/resolv.conf")
    return [_bind(f"{name}:{name}:ro") for name in names if os.path.exists(name)]


#: Where Slurm 24.11 mounts a folder of its own.
_SLURMS = "/var/run/slurm"
#: Folders that are the node's, or new for each job.
_OWN = ("/dev", "/proc", "/run", "/sys", "/tmp")


def _tmpfs(target: str, *options: str) -> Dict[str, Any]:
    return {
        "destination": target,
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", *options],
    }


_SYSTEM_MOUNTS = (
    {"destination": "/proc", "type": "proc", "source": "proc"},
    _tmpfs("/dev", "mode=755"),
    {
        "destination": "/dev/pts",
        "type": "devpts",
        "source": "devpts",
        "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
    },
    _tmpfs("/dev/shm", "nodev", "mode=1777"),
    {
        "destination": "/sys",
        "type": "bind",
        "source": "/sys",
        "options": ["rbind", "nosuid", "noexec", "nodev", "ro"],
    },
    _tmpfs("/tmp", "nodev", "mode=1777"),
    _tmpfs("/run", "nodev", "mode=755"),
)  # type: Any


if __name__ == "__main__":
    sys.exit(main(os.environ))
