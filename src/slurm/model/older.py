"""The arguments of a cluster in slurm-sdk 0.4: for hints, and for `slurm migrate`."""

from __future__ import annotations

#: Arguments that are renamed, and nothing else.
RENAMED = {
    "default_account": "account",
    "default_packaging": "packaging",
    "default_partition": "partition",
    "key_filename": "identity_file",
}
_OPENSSH = "your OpenSSH decides it: write it into ~/.ssh/config, or ssh_options="
#: Arguments that are gone, and what to do.
GONE = {
    "allow_agent": _OPENSSH,
    "auth_timeout": "use connect_timeout=",
    "backend_config": "its keys are arguments of Cluster: Cluster(hostname=...)",
    "banner_timeout": "use connect_timeout=",
    "connection_attempts": "leave it out: a lost connection is made again by itself",
    "disabled_algorithms": _OPENSSH,
    "gss_auth": _OPENSSH,
    "gss_deleg_creds": _OPENSSH,
    "gss_host": _OPENSSH,
    "gss_kex": _OPENSSH,
    "host_key_policy": _OPENSSH,
    "look_for_keys": _OPENSSH,
    "overrides": "give the arguments themselves: Cluster.from_env('hpc', hostname=...)",
    "remote_workdir": "use job_base_dir=",
    "retry_delay": "leave it out: a lost connection is made again by itself",
    "script_permissions": "leave it out: run directories are yours alone",
}
_PREFIXES = ("default_packaging_", "packaging_")


def hint(name: str) -> str | None:
    """What to write in place of an argument that slurm-sdk 0.4 had; None for any other name."""
    if name in RENAMED:
        return f"write {RENAMED[name]}="
    key = packaging_key(name)
    if key is not None:
        return f'write packaging={{"type": ..., "{key}": ...}}'
    return GONE.get(name)


def packaging_key(name: str) -> str | None:
    """`registry` of `packaging_registry` and `default_packaging_registry`."""
    found = next((name[len(p) :] for p in _PREFIXES if name.startswith(p)), "")
    return found or None
