#!/bin/bash
#SBATCH --job-name=train
#SBATCH --chdir=/home/ada/slurm_jobs/train-20260101-120000-abc123
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=2
#SBATCH --output=logs/%j.out
#SBATCH --error=logs/%j.err
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --signal=B:USR2@60

export SLURM_SDK_BASE=/home/ada/slurm_jobs
export SLURM_SDK_RUN=/home/ada/slurm_jobs/train-20260101-120000-abc123
export SLURM_SDK_NAME=train-20260101-120000-abc123
export SLURM_SDK_PART=0
export SLURM_SDK_OFFSET=0
export SLURM_SDK_ROOT=/home/ada/slurm_jobs/.sdk/0123456789
export SLURM_SDK_WARNING=USR2
export SLURM_SDK_TWICE=no
export SLURM_SDK_AGAIN=''

# ---- prelude.sh stands here ----

cd -- /home/ada/project
sdk_check $? 'cd to the working directory'
unset RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
export PYTHONUNBUFFERED=1
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}"

# Ranks meet at the first node, on a port nobody listens on there.
sdk_port=$((20000 + sdk_job % 20000))
while (: < /dev/tcp/127.0.0.1/$sdk_port) 2>/dev/null; do
  sdk_port=$((sdk_port + 1))
done
sdk_first=${SLURMD_NODENAME:-$sdk_host}
getent hosts "$sdk_first" >/dev/null 2>&1 || sdk_first=$sdk_host
export MASTER_ADDR="${MASTER_ADDR:-$sdk_first}" MASTER_PORT="${MASTER_PORT:-$sdk_port}"
export SLURM_SDK_RANKS=1
set +eu
sdk_arm
sdk_phase=run
( umask $sdk_umask; trap '' USR2; exec srun --kill-on-bad-exit=1 --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpus-per-task=8 /usr/bin/python3.11 /home/ada/slurm_jobs/.sdk/0123456789/slurm/runner/torchrun.py "$SLURM_SDK_RUN" 4 ) &
sdk_child=$!
sdk_wait
sdk_child=''
# Of ranks that were killed for memory only srun tells: Slurm calls the job itself FAILED.
if [ "$sdk_code" -ne 0 ] && [ -f "/proc/$$/fd/2" ]; then
  sdk_says='^(srun|slurmstepd)[^:]*: error: .*(oom.kill event|Out Of Memory)'
  tail -c 8192 "/proc/$$/fd/2" | grep -Eqs "$sdk_says" && sdk_oom=' oom=1'
fi

exit "$sdk_code"
