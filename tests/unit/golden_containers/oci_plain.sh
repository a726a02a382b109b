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
export SLURM_SDK_OCI_IMAGE=registry.example.org:5000/me/app@sha256:abababababababababababababababababababababababababababababababab
export SLURM_SDK_OCI_MOUNTS=''
export SLURM_SDK_OCI_CODE=/home/me/p
export SLURM_SDK_OCI_WORKDIR=''
export SLURM_SDK_OCI_TLS=yes
sdk_words=()
for sdk_name in ${!SLURM@} ${!SRUN_@} ${!PMI@} ${!OMPI_@} ${!UCX_@} ${!NCCL_@} ${!NVIDIA_@} ${!CUDA_VISIBLE_@} ${!ROCR_VISIBLE_@} ${!HIP_VISIBLE_@} ${!ZE_AFFINITY_@} ${!GPU_DEVICE_@} MASTER_ADDR MASTER_PORT RANK LOCAL_RANK WORLD_SIZE OMP_NUM_THREADS PYTHONUNBUFFERED PYTHONHASHSEED TZ; do
  [ -z "${!sdk_name+x}" ] || sdk_words+=("$sdk_name")
done
sdk_export=$(IFS=,; echo "${sdk_words[*]}")
sdk_bundle=$(python3 "$SLURM_SDK_ROOT/slurm/runner/bundle.py")
exec srun "--container=$sdk_bundle" "--export=$sdk_export" python3 runner
