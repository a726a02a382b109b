#!/bin/sh
# Brings this host's nodes into the cluster; `join.sh leave` takes them away again. Needs docker or
# podman, and the key in secrets/, which `slurm cluster join` has put there.
set -eu
cd "$(dirname "$0")"
here=$PWD
umask 077

for engine in ${ENGINE:-@ENGINES@} ''; do
  [ -n "$engine" ] || { echo "neither docker nor podman answers on this host" >&2; exit 1; }
  ! "$engine" info > /dev/null 2>&1 || break
done

leave() {
  for name in @NAMES@; do
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
  "$engine" network rm @NETWORK@ > /dev/null 2>&1 || true
  rm -rf secrets
  exit 0
fi
for folder in @FOLDERS@; do mkdir -p "$folder"; done
"$engine" image inspect @IMAGE@ > /dev/null 2>&1 ||
  "$engine" build @BUILD@ --tag @IMAGE@ --file Containerfile .
"$engine" network inspect @NETWORK@ > /dev/null 2>&1 || "$engine" network create @NETWORK@ > /dev/null
@BRING@
