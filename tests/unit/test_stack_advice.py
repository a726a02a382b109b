"""What helps when a container or a service does not come up, by its last words and before."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm.errors import StackError
from slurm.stack import advice

# As the programs said it.
_SAID = {
    "error during container init: error setting rlimits for ready process: error setting rlimit "
    "type 7: operation not permitted: OCI permission denied": "default_ulimits",
    "rootlessport listen tcp 127.0.0.1:2222: bind: address already in use": "cluster.toml",
    "slurmdbd: error: mysql_real_connect failed: 1045 Access denied for user 'slurm'@'%'": (
        "database_password"
    ),
    "entrypoint: the secret slurm.key is missing: run ./make-secrets.sh first": "make-secrets.sh",
    "exec /usr/local/bin/slurm-entrypoint: exec format error": "platform",
    "slurmctld: fatal: Can not recover last_tres state, incompatible version, got 9728 need >= "
    "10240 <= 10752": "upgrade",
    "slurmd: error: cgroup namespace 'memory' not mounted. aborting": "enforce = false",
    "slurmctld: error: cannot find job_submit plugin for job_submit/nosuch": "[images] packages",
    "entrypoint: slurmdbd:6819 does not answer after 300 s": "waits for",
    "write /var/lib/slurm/state/job_state.new: No space left on device": "space",
}


@pytest.mark.parametrize("words", _SAID)
def test_the_last_words_of_a_service_name_the_likely_fix(words: str) -> None:
    assert _SAID[words] in advice.likely_fix(["slurmctld: something before", words])


def test_words_that_nobody_knows_name_no_fix() -> None:
    assert advice.likely_fix(["slurmctld: Running as primary controller"]) == ""


@pytest.mark.parametrize(
    ("may_raise", "hard_limit", "settings", "too_high"),
    [
        (False, 20_000, "", True),
        (False, 20_000, '#default_ulimits = ["nofile=1:1"]\n', True),
        (False, 20_000, '[containers]\ndefault_ulimits = ["nofile=1:1"]\n', False),
        (False, 1_048_576, "", False),
        (True, 20_000, "", False),
    ],
)
def test_podmans_limits_are_too_high_only_where_root_may_not_raise_its_own(
    may_raise: bool, hard_limit: int, settings: str, too_high: bool
) -> None:
    assert advice.limits_too_high(may_raise, hard_limit, settings) == too_high


def test_a_host_whose_limits_are_too_low_is_told_the_lines_before_podman_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    monkeypatch.setattr(advice, "limits_too_high", lambda *_: True)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(StackError) as caught:
        advice.check_podman()
    assert 'runtime = "runc"' in caught.value.evidence
    assert "/etc/containers/containers.conf" in str(caught.value.hint)
