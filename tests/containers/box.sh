#!/bin/bash
# Slurm in one container, controller and one node: box.sh PORT PORT COMMAND... runs COMMAND in it.
set -eu
host=$(uname -n)
mkdir -p /etc/slurm /var/spool/ctld /var/spool/slurmd /run/slurm
head -c 1024 /dev/urandom > /etc/slurm/slurm.key
chmod 600 /etc/slurm/slurm.key
cat > /etc/slurm/slurm.conf << EOF
ClusterName=box
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/slurm
CredType=cred/slurm
StateSaveLocation=/var/spool/ctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPort=$1
SlurmdPort=$2
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,sched_interval=1
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 RealMemory=2000
PartitionName=main Nodes=ALL Default=YES State=UP
EOF
echo "CgroupPlugin=disabled" > /etc/slurm/cgroup.conf
# Images in one file are mounted by the user, through this device.
chmod 666 /dev/fuse
slurmctld
slurmd
for _ in $(seq 300); do
  [ "$(sinfo -h -o %t 2> /dev/null)" != idle ] || break
  sleep 0.2
done
exec "${@:3}"
