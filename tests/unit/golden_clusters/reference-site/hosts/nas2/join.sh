#!/bin/sh
# Brings this host's nodes into the cluster; `join.sh leave` takes them away again. Needs docker or
# podman, and the key in secrets/, which `slurm cluster join` has put there.
set -eu
cd "$(dirname "$0")"
here=$PWD
umask 077

for engine in ${ENGINE:-docker podman} ''; do
  [ -n "$engine" ] || { echo "neither docker nor podman answers on this host" >&2; exit 1; }
  ! "$engine" info > /dev/null 2>&1 || break
done

leave() {
  for name in lab-nas2-slurmd-qnap2; do
    "$engine" stop --time 30 "$name" > /dev/null 2>&1 || true
    "$engine" rm --force "$name" > /dev/null 2>&1 || true
  done
}

# bring NAME WORDS...: create a container from these words, and start it.
bring() {
  name=$1
  shift
  "$engine" create "$@" > /dev/null
  "$engine" start "$name" > /dev/null
}

leave
if [ "${1:-join}" = leave ]; then
  "$engine" network rm lab-nas2_slurm-edge > /dev/null 2>&1 || true
  rm -rf secrets
  exit 0
fi
for folder in /share/Container/slurm/spool-qnap2; do mkdir -p "$folder"; done
"$engine" image inspect localhost/slurm-sdk/slurm:24.11-CONTENT > /dev/null 2>&1 ||
  "$engine" build --target slurm --build-arg BASE=docker.io/library/debian:trixie-slim --build-arg SUITE=trixie --build-arg 'PACKAGES=slurmctld slurmd slurmdbd slurm-client munge openssh-server python3 iproute2 runc slurmrestd slurm-wlm-jwt-plugin sackd' --tag localhost/slurm-sdk/slurm:24.11-CONTENT --file Containerfile .
"$engine" network inspect lab-nas2_slurm-edge > /dev/null 2>&1 || "$engine" network create lab-nas2_slurm-edge > /dev/null
bring lab-nas2-slurmd-qnap2 \
  --name lab-nas2-slurmd-qnap2 \
  --label slurm-sdk.cluster=lab-nas2 \
  --label slurm-sdk.dir="$here" \
  --label slurm-sdk.service=slurmd-qnap2 \
  --label slurm-sdk.spec=CONTENT \
  --hostname slurmd-qnap2 \
  --init \
  --restart unless-stopped \
  --network lab-nas2_slurm-edge \
  --add-host slurmctld:192.168.1.10 \
  --add-host slurmd-ubuntu:192.168.1.10 \
  --add-host slurmd-macbook:192.168.1.20 \
  --add-host slurmd-qnap1:192.168.1.31 \
  --add-host slurmd-qnap2:192.168.1.32 \
  --env SLURM_AUTH=slurm \
  --env SLURM_CLUSTER=lab \
  --env SLURM_USERS=ada:1000:1000 \
  --env SLURM_SHARED=/home \
  --env SLURMCTLD_PORT=6817 \
  --env SLURM_SACK_KEY=/run/slurm-keys/slurm.key \
  --env SRUN_PORTS=60001-60200 \
  --env SLURM_NODE=qnap2 \
  --env SLURM_HOST_ADDRESS=192.168.1.32 \
  --env SLURM_CPUS=2 \
  --env SLURM_MEMORY=2048 \
  --env SLURM_RESERVED=128 \
  --env 'SLURM_NODE_WORDS=Port=6830 Feature=qnap2,nas Weight=10' \
  --env SLURM_NODE_PORT=6830 \
  --volume /share/Container/slurm/spool-qnap2:/var/spool/slurmd \
  --volume /share/homes:/home \
  --volume "$here"/secrets/slurm.key:/run/secrets/slurm.key:ro \
  --publish 192.168.1.32:6830:6830 \
  --publish 192.168.1.32:60001-60200:60001-60200 \
  --cap-add NET_ADMIN \
  --log-driver json-file \
  --log-opt max-size=10m \
  --log-opt max-file=3 \
  --memory 2048m \
  --health-cmd '/usr/local/bin/slurm-entrypoint health slurmd' \
  --health-interval 15s \
  --health-timeout 15s \
  --health-retries 4 \
  --health-start-period 60s localhost/slurm-sdk/slurm:24.11-CONTENT slurmd
