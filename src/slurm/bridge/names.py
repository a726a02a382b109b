"""Every name that the bridge writes into Kubernetes or Slurm."""

from __future__ import annotations

PREFIX = "slurm-sdk/"
# The keys of another bridge's users: read like ours, so that their manifests keep working.
OTHER_PREFIX = "slurmjob.slinky.slurm.net/"

GATE = PREFIX + "placement"
FINALIZER = PREFIX + "placeholder"
TAINT = PREFIX + "managed"
CONDITION = PREFIX + "placed"
SCHEDULER = "slurm-bridge"
FIELD_MANAGER = "slurm-bridge"

# On pods, written by the bridge alone.
MANAGED = PREFIX + "managed"
JOB = PREFIX + "job"
NODE = PREFIX + "node"
USER = PREFIX + "as-user"
ACCOUNT = PREFIX + "as-account"
# Written by the bridge; a user removes it to have a cancelled pod submitted again.
HELD = PREFIX + "held"
# A user's wish: submit again after an administrator cancelled the waiting job.
RESUBMIT = PREFIX + "resubmit"

RESERVED_LABELS = frozenset({MANAGED, JOB})
RESERVED_ANNOTATIONS = frozenset({NODE, USER, ACCOUNT, HELD})

# On nodes.
EXTERNAL_NODE = PREFIX + "external-node"
SLURM_NAME = PREFIX + "node-name"
PARTITIONS = PREFIX + "partitions"
TOPOLOGY = PREFIX + "topology"

# In Slurm: the reason of a drain that is ours begins so, and no other drain is ever undone.
REASON = "slurm-sdk bridge: "

# Of other projects, read only.
DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-key"
LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"
LWS_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
JOB_INDEX = "batch.kubernetes.io/job-completion-index"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
