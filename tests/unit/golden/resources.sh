#!/bin/bash
#SBATCH --job-name=train
#SBATCH --chdir=/home/ada/slurm_jobs/train-20260101-120000-abc123
#SBATCH --comment="it's $(mine)"
#SBATCH --partition=gpu,long
#SBATCH --account=lab
#SBATCH --qos=high
#SBATCH --constraint=a100|h100
#SBATCH --time=02:00:00
#SBATCH --begin=now+2hours
#SBATCH --nice=100
#SBATCH --cpus-per-task=4
#SBATCH --mem=8192M
#SBATCH --gpus=a100:2
#SBATCH --licenses=matlab:2
#SBATCH --exclusive
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --mail-type=END
#SBATCH --mail-user=ada@example.org
#SBATCH --output=logs/%j.txt
#SBATCH --error=logs/%j.err
#SBATCH --open-mode=append

export SLURM_SDK_BASE=/home/ada/slurm_jobs
export SLURM_SDK_RUN=/home/ada/slurm_jobs/train-20260101-120000-abc123
export SLURM_SDK_NAME=train-20260101-120000-abc123
export SLURM_SDK_PART=0
export SLURM_SDK_OFFSET=0
export SLURM_SDK_ROOT=/home/ada/slurm_jobs/.sdk/0123456789
export SLURM_SDK_WARNING=USR1
export SLURM_SDK_TWICE=yes
export SLURM_SDK_AGAIN=''

# ---- prelude.sh stands here ----

cd -- /home/ada/project
sdk_check $? 'cd to the working directory'
export PYTHONUNBUFFERED=1
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}"

set +eu
sdk_arm
sdk_phase=run
( umask $sdk_umask; trap '' USR1; exec /usr/bin/python3.11 /home/ada/slurm_jobs/.sdk/0123456789/slurm/runner/__main__.py "$SLURM_SDK_RUN" ) &
sdk_child=$!
sdk_wait
sdk_child=''

exit "$sdk_code"
