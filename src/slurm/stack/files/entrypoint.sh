#!/bin/bash
# Starts one service of a Slurm cluster: waits for what it needs, puts the secrets where the daemon
# looks for them, and becomes the daemon. `health SERVICE` says whether that service does its work.
set -euo pipefail

keys=/run/slurm-keys
# Seconds to wait for another service before giving up; the restart policy then tries anew.
limit=${WAIT_LIMIT:-300}
auth=${SLURM_AUTH:-munge}

say() { echo "entrypoint: $*" >&2; }

die() {
  say "$*"
  exit 1
}

# ---- waiting: exponential back-off with a limit ---------------------------------------------------

# retry WHAT COMMAND...: pauses of 0.1 s, 0.2 s, 0.4 s ... at most 3.2 s, until it works.
retry() {
  local what=$1 pause=100 start=$SECONDS
  shift
  until "$@" > /dev/null 2>&1; do
    [ $((SECONDS - start)) -lt "$limit" ] || die "$what does not answer after $limit s"
    sleep "$((pause / 1000)).$(printf %03d $((pause % 1000)))"
    pause=$((pause < 3200 ? pause * 2 : 3200))
  done
}

# 3<> opens a connection with bash alone: the images need no other program for it.
connects() { timeout 5 bash -c ': 3<> "/dev/tcp/$0/$1"' "$1" "$2"; }

wait_for() { retry "$1:$2" connects "$1" "$2"; }

# Where there are two controllers, the second may have taken over.
any_controller() {
  local host
  for host in ${SLURM_CONTROLLERS:-slurmctld}; do
    ! connects "$host" "$SLURMCTLD_PORT" || return 0
  done
  return 1
}

# http_answers PORT PATH [STATUS]: whether the answer's first line has a status that fits.
http_answers() {
  local line
  exec 3<> "/dev/tcp/127.0.0.1/$1" || return 1
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$2" >&3
  IFS= read -r -t 10 line <&3 || return 1
  exec 3>&-
  [[ $line =~ ^HTTP/1\.[01]\ ${3:-200} ]]
}

# ---- secrets and users ----------------------------------------------------------------------------

# Secrets have the number of the user who made them on the host, and a user of this cluster may have
# the same: nobody but root passes through their folder.
close_secrets() {
  [ ! -d /run/secrets ] || chmod 0700 /run/secrets || die "/run/secrets cannot be closed to users"
}

# A secret comes read-only and owned by whoever made it: the daemon gets a copy in memory.
key() {
  local name=$1 owner=$2
  [ -s "/run/secrets/$name" ] || die "the secret $name is missing: run ./make-secrets.sh first"
  install -d -m 0711 "$keys"
  install -m 0600 -o "$owner" -g "$owner" "/run/secrets/$name" "$keys/$name"
}

users() {
  local entry name uid gid
  for entry in ${SLURM_USERS//,/ }; do
    IFS=: read -r name uid gid <<< "$entry"
    getent group "$gid" > /dev/null || groupadd --gid "$gid" "$name"
    getent passwd "$uid" > /dev/null ||
      useradd --uid "$uid" --gid "$gid" --home-dir "$SLURM_SHARED/$name" --no-create-home \
        --shell /bin/bash "$name"
    # A home that is there already stays as it is.
    if mountpoint -q "$SLURM_SHARED" && [ ! -e "$SLURM_SHARED/$name" ]; then
      install -d -m 0700 -o "$uid" -g "$gid" "$SLURM_SHARED/$name"
    fi
  done
}

# identity [OWNER] [client]: what a container needs to be known to the others. /run/slurm must be
# its daemon's own; a client has no daemon that signs for its commands, so one is started.
identity() {
  install -d -m 0755 -o slurm -g slurm /run/slurmctld /run/slurmdbd
  install -d -m 0755 -o "${1:-slurm}" /run/slurm
  if [ "$auth" = munge ]; then
    key munge.key munge
    chmod 0400 "$keys/munge.key"
    install -d -m 0755 -o munge -g munge /run/munge /var/lib/munge /var/log/munge
    runuser -u munge -- munged --key-file="$keys/munge.key" --num-threads=10 --force
    retry munged munge --no-input
  else
    key slurm.key slurm
    if [ "${2:-}" = client ]; then
      RUNTIME_DIRECTORY=/run/slurm sackd
      retry sackd test -S /run/slurm/sack.socket
    fi
  fi
}

# become USER PROGRAM...: the program instead of this script, without root's rights.
become() { exec setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }

# ---- services -------------------------------------------------------------------------------------

mysql() {
  local data=/var/lib/mysql password
  [ -s /run/secrets/database_password ] || die "the secret database_password is missing"
  password=$(< /run/secrets/database_password)
  install -d -m 0700 -o mysql -g mysql "$data"
  install -d -m 0755 -o mysql -g mysql /run/mysqld
  if [ ! -e "$data/made" ]; then
    find "$data" -mindepth 1 -delete
    mariadb-install-db --no-defaults --user=mysql --datadir="$data" --skip-test-db \
      --auth-root-authentication-method=socket > /dev/null
    touch "$data/made"
  fi
  # Passwords follow their file: whoever can change it may.
  cat > /run/mysqld/init.sql <<- SQL
	CREATE DATABASE IF NOT EXISTS \`$DATABASE_NAME\`;
	CREATE USER IF NOT EXISTS '$DATABASE_USER'@'%';
	ALTER USER '$DATABASE_USER'@'%' IDENTIFIED BY '${password//[\\\']/}';
	GRANT ALL ON \`$DATABASE_NAME\`.* TO '$DATABASE_USER'@'%';
	SQL
  chown mysql:mysql /run/mysqld/init.sql
  chmod 0600 /run/mysqld/init.sql
  exec mariadbd --no-defaults --user=mysql --datadir="$data" --init-file=/run/mysqld/init.sql \
    --socket=/run/mysqld/mysqld.sock --pid-file=/run/mysqld/mysqld.pid --bind-address=0.0.0.0 \
    --skip-name-resolve --innodb-buffer-pool-size="${DATABASE_BUFFER_POOL:-128M}" \
    --innodb-lock-wait-timeout=900 --max-allowed-packet=16M $(snapshot_isolation)
}

# slurmdbd cannot live with it; servers before the option do not start with it.
snapshot_isolation() {
  if mariadbd --no-defaults --verbose --help 2> /dev/null | grep -q '^innodb-snapshot-isolation'
  then
    echo --innodb-snapshot-isolation=OFF
  fi
}

slurmdbd() {
  local own=/run/slurmdbd-conf
  identity
  [ ! -e /run/secrets/jwt_hs256.key ] || key jwt_hs256.key slurm
  [ -s /run/secrets/database_password ] || die "the secret database_password is missing"
  # slurmdbd reads the file beside slurm.conf, and wants it 0600; only here it has the password.
  install -d -m 0700 -o slurm -g slurm "$own"
  ln -sf /etc/slurm/slurm.conf "$own/slurm.conf"
  install -m 0600 -o slurm -g slurm /etc/slurmdbd/slurmdbd.conf "$own/slurmdbd.conf"
  printf 'StoragePass=%s\n' "$(< /run/secrets/database_password)" >> "$own/slurmdbd.conf"
  export SLURM_CONF=$own/slurm.conf
  wait_for "$DATABASE_HOST" "$DATABASE_PORT"
  users
  [ "$auth" = munge ] || register &
  RUNTIME_DIRECTORY=/run/slurmdbd exec slurmdbd -D
}

# A controller that finds its name missing in accounting adds it itself, on several connections at
# once; when they meet, slurmdbd 22.05 refuses it from then on.
register() {
  retry sacctmgr sacctmgr --noheader show cluster
  sacctmgr --immediate --quiet add cluster "$SLURM_CLUSTER" > /dev/null 2>&1 || true
}

slurmctld() {
  identity
  [ ! -e /run/secrets/jwt_hs256.key ] || key jwt_hs256.key slurm
  install -d -m 0700 -o slurm -g slurm /var/lib/slurm/state
  users
  if grep -q '^AccountingStorageHost=' /etc/slurm/slurm.conf; then
    wait_for slurmdbd 6819
    [ "$auth" != munge ] || register
    [ ! -e /etc/slurm/accounting.sh ] || [ "$(hostname)" != slurmctld ] || accounting &
  fi
  if [ "$(hostname)" != slurmctld ]; then
    # A first controller that meets a backup in the middle of its start waits 30 s for it. One that
    # is away must not keep the backup from its work.
    (limit=60 wait_for slurmctld "$SLURMCTLD_PORT") || true
  fi
  # Never with -i: it would throw a state away that it cannot read.
  RUNTIME_DIRECTORY=/run/slurmctld exec slurmctld -D
}

accounting() {
  retry slurmctld health_slurmctld
  bash /etc/slurm/accounting.sh || say "accounts and QOS are not all as the topology says"
}

slurmd() {
  local joining=()
  identity root
  users
  retry slurmctld any_controller
  if [ -n "${SLURM_HOST_ADDRESS:-}" ]; then
    # The cluster knows this node by its host's address, which is this container's own, too: what
    # starts here for this node must not go out and come back in.
    ip address add "$SLURM_HOST_ADDRESS/32" dev lo 2> /dev/null || true
    joining=(-Z --conf-server "slurmctld:$SLURMCTLD_PORT" --conf "$(has) $SLURM_NODE_WORDS")
    say "joins with ${joining[*]}"
  fi
  RUNTIME_DIRECTORY=/run/slurm exec slurmd -D -N "$SLURM_NODE" "${joining[@]}"
}

# has: CPUs and memory of a node that joins, what the topology says at most and never more than this
# container may use; SLURM_RESERVED is what slurmd itself needs of it.
has() {
  local cpus=$SLURM_CPUS memory=$SLURM_MEMORY
  cpus=$(least "$cpus" "$(nproc)" "$(quota)")
  memory=$(least "$memory" "$(awk '/^MemTotal:/ {print int($2 / 1024)}' /proc/meminfo)" \
    "$(mebibytes /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes)")
  echo "CPUs=$cpus CoresPerSocket=$cpus RealMemory=$((memory - SLURM_RESERVED))"
}

least() { printf '%s\n' "$@" | grep -E '^[1-9][0-9]{0,9}$' | sort -n | head -n 1; }

mebibytes() { cat "$@" 2> /dev/null | awk '/^[0-9]+$/ {print int($1 / 1048576); exit}'; }

# quota: whole CPUs of the time that the container may have; nothing where there is no limit.
quota() {
  { cat /sys/fs/cgroup/cpu.max 2> /dev/null ||
    paste /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.cfs_period_us; } \
    2> /dev/null | awk '$1 ~ /^[0-9]+$/ {n = int($1 / $2); print n ? n : 1}'
}

slurmrestd() {
  install -d -m 0755 /run/slurm
  users
  retry slurmctld any_controller
  # A key for the daemons would win over the tokens that its callers bring.
  unset SLURM_SACK_KEY
  export SLURM_JWT=daemon
  # It refuses to be root, or the user of the other daemons.
  become slurmrest slurmrestd -a rest_auth/jwt "0.0.0.0:$SLURMRESTD_PORT"
}

login() {
  identity slurm client
  users
  install -d -m 0755 /run/sshd
  local kind
  for kind in ed25519 ecdsa rsa; do
    [ -e "/etc/ssh/keys/$kind" ] || ssh-keygen -q -t "$kind" -N '' -f "/etc/ssh/keys/$kind"
  done
  retry slurmctld any_controller
  exec /usr/sbin/sshd -D -e -o HostKey=/etc/ssh/keys/ed25519 -o HostKey=/etc/ssh/keys/ecdsa \
    -o HostKey=/etc/ssh/keys/rsa -o PasswordAuthentication=no -o PermitRootLogin=no \
    -o AuthorizedKeysFile='/etc/ssh/authorized_keys/%u .ssh/authorized_keys'
}

slurm-exporter() {
  identity slurm client
  retry slurmctld any_controller
  PYTHONPATH=/opt/slurm-sdk become slurm python3 -m slurm.monitor serve --address 0.0.0.0 \
    --port "$EXPORTER_PORT"
}

prometheus() {
  install -d -m 0755 -o prometheus -g prometheus /var/lib/prometheus
  become prometheus /usr/bin/prometheus --config.file=/etc/prometheus/prometheus.yml \
    --storage.tsdb.path=/var/lib/prometheus --storage.tsdb.retention.time="$PROMETHEUS_KEEP" \
    --web.listen-address=0.0.0.0:9090
}

node-exporter() {
  become prometheus /usr/bin/prometheus-node-exporter --path.rootfs=/host --path.procfs=/host/proc \
    --path.sysfs=/host/sys --web.listen-address=0.0.0.0:9100
}

# ---- health ---------------------------------------------------------------------------------------

# `scontrol ping` is content when any controller answers: this one must.
health_slurmctld() { scontrol ping | grep -Eq " at $(hostname) is UP"; }

# Of two controllers one has the queue; the other stands by and refuses to tell about it.
health_in-charge() {
  local alone=/run/slurmctld/alone.conf
  sed -E "/^SlurmctldHost=$(hostname)(\(|$)/!{/^SlurmctldHost=/d}" /etc/slurm/slurm.conf > "$alone"
  SLURM_CONF=$alone timeout 10 squeue --noheader > /dev/null 2>&1
}

# slurmd answers for itself; whether slurmctld has it in service is asked elsewhere. scontrol knows
# SlurmdPort alone, and a node may have another.
health_slurmd() {
  local conf=/etc/slurm/slurm.conf
  [ -e "$conf" ] || conf=/run/slurm/conf/slurm.conf
  printf 'SlurmdPort=%s\nInclude %s\n' "${SLURM_NODE_PORT:-6818}" "$conf" > /run/slurm-health.conf
  SLURM_CONF=/run/slurm-health.conf scontrol show slurmd "$SLURM_NODE" | grep -q '^Slurmd PID'
}

# Asks through slurmdbd for what lies in the database.
health_slurmdbd() {
  SLURM_CONF=/run/slurmdbd-conf/slurm.conf sacctmgr --noheader show cluster > /dev/null
}

health_mysql() {
  mariadb --no-defaults --socket=/run/mysqld/mysqld.sock --batch --execute \
    "SELECT 1 FROM information_schema.schemata WHERE schema_name = '$DATABASE_NAME'" | grep -q 1
}

# Without a token it says 401, which is an answer.
health_slurmrestd() { http_answers "$SLURMRESTD_PORT" /openapi/v3 '(200|401)'; }

health_login() {
  local line
  exec 3<> /dev/tcp/127.0.0.1/22 && IFS= read -r -t 10 line <&3 && [[ $line == SSH-2.0* ]]
}

health_prometheus() { http_answers 9090 /-/ready; }
health_node-exporter() { http_answers 9100 /metrics; }
health_slurm-exporter() { http_answers "$EXPORTER_PORT" /-/ready; }

# Where hosts are several each container publishes its own ports for srun; slurm.conf includes this.
[ -z "${SRUN_PORTS:-}" ] || echo "SrunPortRange=$SRUN_PORTS" > /run/srun-ports.conf

role=${1:-}
if [ "$role" = health ]; then
  "health_$2"
elif [ "$(type -t "$role")" = function ] && [ "$(type -t "health_$role")" = function ]; then
  close_secrets
  "$role"
else
  # Anything else is a command of whoever looks into the image.
  exec "$@"
fi
