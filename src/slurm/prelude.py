"""What every job's script does before the user's own lines, in bash.

It finds out who it is, sets the traps that record a death, claims its part of the run and notes
that it has begun. It starts no process where bash can do without: every element of a map pays.
"""

from __future__ import annotations

#: Says nothing of the call itself: `slurm.rendering` writes that into variables before it.
PRELUDE = r"""
# Who this is: job, array index, attempt; and where this host writes its events.
sdk_job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_STEP_ORDER:+.$SLURM_STEP_ORDER}
sdk_index=$((${SLURM_ARRAY_TASK_ID:-0} + SLURM_SDK_OFFSET))
sdk_who="job=$sdk_job index=$sdk_index rank=- attempt=${SLURM_RESTART_COUNT:-0}"
sdk_boot=0
[ -r /proc/sys/kernel/random/boot_id ] && read -r sdk_boot < /proc/sys/kernel/random/boot_id
# The kernel's name, as Python sees it: Slurm puts the node's name into HOSTNAME.
sdk_host=$HOSTNAME
[ -r /proc/sys/kernel/hostname ] && read -r sdk_host < /proc/sys/kernel/hostname
sdk_host=${sdk_host%%.*}
sdk_token=${sdk_host//[^A-Za-z0-9.-]/_}-${sdk_boot:0:8}
sdk_events=$SLURM_SDK_RUN/events/$sdk_token.txt
sdk_phase=setup sdk_child='' sdk_signal='' sdk_code='' sdk_oom='' sdk_litter=''
sdk_umask=$(umask)  # what the function writes has the user's own
umask 077

# Time of day without starting a process, where bash can.
sdk_now() {
  printf -v sdk_time '%(%s)T' -1 2>/dev/null || sdk_time=$(date +%s)
  printf -v sdk_day '%(%Y%m%d)T' -1 2>/dev/null || sdk_day=$(date +%Y%m%d)
}

# The most memory that the job has used on this node, where the kernel keeps it.
sdk_memory() {
  local kind group file
  sdk_peak=''
  while IFS=: read -r _ kind group; do
    group=${group%%/step_*}
    case $kind:$group in
      *memory*:*slurm*/job_*) file=/sys/fs/cgroup/memory$group/memory.max_usage_in_bytes ;;
      :*slurm*/job_*) file=/sys/fs/cgroup$group/memory.peak ;;
      *) continue ;;
    esac
    [ -r "$file" ] && read -r sdk_peak < "$file"
  done 2>/dev/null < /proc/self/cgroup
}

# A death is recorded by bash alone, since Python may be what died.
sdk_exit() {
  local status=$?
  trap '' TERM INT HUP USR1 USR2
  [ -n "$sdk_code" ] && status=$sdk_code
  sdk_now
  local line="exit $sdk_who run=$SLURM_SDK_NAME phase=$sdk_phase code=$status"
  sdk_memory || :
  line="$line signal=${sdk_signal:-0} elapsed=$SECONDS$sdk_oom time=$sdk_time"
  line="$line${sdk_peak:+ peak=$sdk_peak}"
  printf '%s\n' "$line" >> "$sdk_events"
  line="$line host=$sdk_host"
  printf '%s\n' "$line" >> "$SLURM_SDK_BASE/.events/$sdk_token-$sdk_day"
  # Never success after a TERM: the scheduler would take a job it stopped for a finished one.
  [ "$sdk_signal" = TERM ] && [ "$status" -eq 0 ] && status=143
  [ -z "$sdk_litter" ] || rm -rf -- "$sdk_litter"
  exit "$status"
}
sdk_caught() {
  sdk_interrupted=1
  [ -n "$sdk_child" ] && kill -s "$1" "$sdk_child" 2>/dev/null
  [ "$1" = "$SLURM_SDK_WARNING" ] && return
  sdk_signal=$1
  [ -n "$sdk_child" ] || exit 143
}
sdk_arm() {
  local name
  trap sdk_exit EXIT
  for name in TERM INT HUP USR1 USR2; do trap "sdk_caught $name" "$name"; done
}
sdk_arm

# One job owns this part of the run: the one whose id the claim names. The first element of an
# array that has found so leaves a mark, and the others need no process to look.
sdk_mark=$SLURM_SDK_RUN/submit/$SLURM_SDK_PART.owner.$sdk_job
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ] && [ -e "$sdk_mark" ]; then
  :
elif ! ln -s "$sdk_job" "$SLURM_SDK_RUN/submit/$SLURM_SDK_PART.claim" 2>/dev/null; then
  sdk_owner=$(readlink "$SLURM_SDK_RUN/submit/$SLURM_SDK_PART.claim")
  if [ "$sdk_owner" != "$sdk_job" ]; then
    trap - EXIT
    if [ -z "$sdk_owner" ]; then
      # slurmd of 24.11 and later makes a directory that it does not see, for the log.
      if [ ! -d "$SLURM_SDK_RUN/submit" ]; then
        echo "slurm-sdk: $sdk_host does not see the files of $SLURM_SDK_RUN" >&2
        exit 72
      fi
      echo "slurm-sdk: $SLURM_SDK_RUN cannot be written on $sdk_host" >&2
      exit 74
    fi
    echo "slurm-sdk: this run belongs to job $sdk_owner; job $sdk_job ends without running" >&2
    exit 0
  fi
  # The same job at the same attempt: a controller that was killed had not saved that it ran.
  if [ -z "${SLURM_ARRAY_TASK_ID:-}" ] && [ "${SLURM_RESTART_COUNT:-0}" -eq 0 ]; then
    export SLURM_SDK_AGAIN=1
  fi
fi
[ -z "${SLURM_ARRAY_TASK_ID:-}" ] || [ -e "$sdk_mark" ] || : > "$sdk_mark"
# The elements of an array share one file for that, each has its own byte in it.
sdk_begun=$SLURM_SDK_RUN/submit/$SLURM_SDK_PART.begun
sdk_to_mine() { [ "$SLURM_ARRAY_TASK_ID" -eq 0 ] || read -r -n "$SLURM_ARRAY_TASK_ID" -u 9 sdk_; }
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ] && [ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] &&
  [ -w "$sdk_begun" ]; then
  { sdk_to_mine && read -r -n 1 -u 9 sdk_; } 9< "$sdk_begun"
  if [ "$sdk_" = x ]; then
    export SLURM_SDK_AGAIN=1
  else
    { sdk_to_mine && printf x >&9; } 9<> "$sdk_begun"
  fi
fi
if [ -n "$SLURM_SDK_AGAIN" ] && [ "$SLURM_SDK_TWICE" = no ]; then
  trap - EXIT
  echo "slurm-sdk: job $sdk_job has begun before, and Slurm forgot it; it is not run again" >&2
  sdk_line=$(grep -hs "^exit $sdk_who " "$SLURM_SDK_RUN"/events/*.txt | tail -n 1)
  sdk_code=${sdk_line#*code=}
  sdk_code=${sdk_code%% *}
  exit "${sdk_code:-75}"
fi
sdk_now
printf 'begin %s host=%s node=%s time=%s\n' "$sdk_who" "$sdk_host" \
  "${SLURMD_NODENAME:-$sdk_host}" "$sdk_time" >> "$sdk_events"
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
  echo "slurm-sdk: attempt $SLURM_RESTART_COUNT of job $sdk_job"
  echo "slurm-sdk: attempt $SLURM_RESTART_COUNT of job $sdk_job" >&2
fi

sdk_check() {  # status, what: a failed setup line ends the job in phase setup
  [ "$1" -eq 0 ] && return
  echo "slurm-sdk: $2 failed with exit code $1" >&2
  sdk_code=$1
  exit "$1"
}
sdk_wait() {  # wait until the child is gone; a trap only interrupts the waiting
  local last
  while :; do
    sdk_interrupted=''
    wait "$sdk_child"
    last=$?
    # 127: the child was already collected, before the signal came
    [ "$last" -eq 127 ] && [ -n "$sdk_code" ] || sdk_code=$last
    [ -n "$sdk_interrupted" ] || break
  done
}
""".strip("\n")
