#!/bin/sh
# Makes this cluster's secrets, once: files of mode 0600 in secrets/, which git ignores.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
for name in slurm.key jwt_hs256.key database_password; do
  [ ! -s "secrets/$name" ] || continue
  case $name in
    # Passwords of letters and digits need no quoting anywhere.
    *_password) LC_ALL=C tr -dc 'A-Za-z0-9' < /dev/urandom | head -c 40 > "secrets/$name.new" ;;
    *) head -c 1024 /dev/urandom > "secrets/$name.new" ;;
  esac
  mv "secrets/$name.new" "secrets/$name"
done
