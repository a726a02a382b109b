#!/bin/bash
#SBATCH --job-name=train
#SBATCH --chdir=/home/ada/slurm_jobs/train-20260101-120000-abc123
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
export PYTHONUNBUFFERED=1
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}"
sdk_conda=$("${CONDA_EXE:-conda}" info --base)
sdk_check $? 'finding conda'
. "$sdk_conda/etc/profile.d/conda.sh"
conda activate torch
sdk_check $? 'activating the conda environment'

set +eu
sdk_arm
sdk_phase=run
( umask $sdk_umask; trap '' USR2; exec /usr/bin/python3.11 /home/ada/slurm_jobs/.sdk/0123456789/slurm/runner/__main__.py "$SLURM_SDK_RUN" ) &
sdk_child=$!
sdk_wait
sdk_child=''

exit "$sdk_code"
