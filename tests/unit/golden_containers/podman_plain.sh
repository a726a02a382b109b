unset SLURM_SDK_DOOR
if [ -z "${SLURM_ARRAY_TASK_ID:-}" ] &&
  sdk_litter=$(mktemp -d "${TMPDIR:-/tmp}/slurm-sdk-door-XXXXXX"); then
  export SLURM_SDK_DOOR=$sdk_litter
  mkfifo "$SLURM_SDK_DOOR/names"
  ( trap "" USR1 USR2; exec 3<> "$SLURM_SDK_DOOR/names"
    while kill -0 $$; do
      read -r -t 3 sdk_name <&3 || continue
      python3 "$SLURM_SDK_ROOT/slurm/api/door.py" "$SLURM_SDK_DOOR" "$sdk_name" &
    done ) < /dev/null > /dev/null 2>&1 &
fi
sdk_enter='
sdk_words=()
for sdk_name in ${!SLURM@} ${!SRUN_@} ${!PMI@} ${!OMPI_@} ${!UCX_@} ${!NCCL_@} ${!NVIDIA_@} ${!CUDA_VISIBLE_@} ${!ROCR_VISIBLE_@} ${!HIP_VISIBLE_@} ${!ZE_AFFINITY_@} ${!GPU_DEVICE_@} MASTER_ADDR MASTER_PORT RANK LOCAL_RANK WORLD_SIZE OMP_NUM_THREADS PYTHONUNBUFFERED PYTHONHASHSEED TZ; do
  [ -z "${!sdk_name+x}" ] || sdk_words+=("--env=$sdk_name")
done
sdk_seen=:
sdk_mount() {
  case $sdk_seen in *":$2:"*) return ;; esac
  sdk_seen=$sdk_seen$2:
  sdk_words+=("--volume=$1:$2${3:+:$3}")
}
sdk_mount "$SLURM_SDK_BASE" "$SLURM_SDK_BASE"
[ ! -d "${SLURM_SDK_DOOR:-}" ] || sdk_mount "$SLURM_SDK_DOOR" "$SLURM_SDK_DOOR"
case "$PWD/" in
  "$SLURM_SDK_BASE"/* | // | *[:,]* | /bin/* | /boot/* | /dev/* | /etc/* | /lib/* | /lib32/* | /lib64/* | /proc/* | /run/* | /sbin/* | /sys/* | /usr/*) ;;
  *) sdk_mount "$PWD" "$PWD" ;;
esac
sdk_mount /home/me/p /home/me/p ro
sdk_words+=("--workdir=$PWD")
# An ordinary user keeps the own number inside: files belong to the same user there.
if [ "$UID" -ne 0 ]; then
  sdk_words+=(--userns=keep-id)
else
  # A container of root would leave the control group of the job, and its memory limit.
  while IFS=: read -r _ sdk_name sdk_group; do
    case $sdk_name:$sdk_group in
      freezer:*/job_*) sdk_words+=("--cgroup-parent=$sdk_group") ;;
    esac
  done < /proc/self/cgroup
fi
# One process of a node pulls, the others wait for it.
if ! podman image exists registry.example.org:5000/me/app@sha256:abababababababababababababababababababababababababababababababab; then
  sdk_lock="${TMPDIR:-/tmp}/slurm-sdk-pull-$UID"
  [ -e "$sdk_lock" ] || ( umask 077; set -C; : > "$sdk_lock" ) 2> /dev/null || :
  # Where somebody else made that file first, each process pulls by itself.
  [ -O "$sdk_lock" ] && [ ! -L "$sdk_lock" ] || sdk_lock=$(mktemp)
  ( flock 9; podman image exists registry.example.org:5000/me/app@sha256:abababababababababababababababababababababababababababababababab || podman pull --quiet registry.example.org:5000/me/app@sha256:abababababababababababababababababababababababababababababababab >&2 ) \
    9>> "$sdk_lock" || {
    echo '"'"'slurm-sdk: the image registry.example.org:5000/me/app@sha256:abababababababababababababababababababababababababababababababab could not be pulled'"'"' >&2
    exit 125; }
fi
# The container is no child of this process: Python ends itself when this one is gone.
export SLURM_SDK_OWNER=$$
exec podman run --rm --network=host --ipc=host --pid=host --log-driver=none --security-opt=label=disable --pull=never --env=SLURM_SDK_OWNER "${sdk_words[@]}" registry.example.org:5000/me/app@sha256:abababababababababababababababababababababababababababababababab "$@"
'
exec bash -c "$sdk_enter" container python3 runner
