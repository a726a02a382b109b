#!/usr/bin/env bash
# A kind cluster with all that the bridge needs, for a trial on one machine: Slurm with slurmrestd in
# a container beside the nodes, the bridge from this directory, and a namespace that opted in.
#
# usage: hack/kind.sh up | down | status
# needs: kind, kubectl, helm, and docker or podman
set -euo pipefail
cd "$(dirname "$0")/.."
name=${KIND_CLUSTER:-slurm-bridge}
engine=${ENGINE:-$(command -v docker >/dev/null && echo docker || echo podman)}
slurm=$name-slurm

need() { for each in "$@"; do command -v "$each" >/dev/null || { echo "$each is needed" >&2; exit 1; }; done; }

make_slurm() {
  "$engine" build -q -t "$slurm" -f deploy/slurm-rest/Containerfile deploy/slurm-rest >/dev/null
  "$engine" run -d --name "$slurm" --hostname slurm --network kind "$slurm" >/dev/null
  for _ in $(seq 60); do "$engine" exec "$slurm" scontrol ping >/dev/null 2>&1 && return; sleep 1; done
  echo "slurmctld did not start:" >&2; "$engine" logs --tail 20 "$slurm" >&2; exit 1
}

up() {
  need kind kubectl helm "$engine"
  kind get clusters | grep -qx "$name" || kind create cluster --name "$name" --config - <<YAML
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes: [{role: control-plane}, {role: worker}, {role: worker}]
YAML
  "$engine" container inspect "$slurm" >/dev/null 2>&1 || make_slurm
  "$engine" build -q -t slurm-sdk/bridge:latest -f deploy/Containerfile . >/dev/null
  kind load docker-image --name "$name" slurm-sdk/bridge:latest
  kubectl create namespace slurm-bridge --dry-run=client -o yaml | kubectl apply -f -
  kubectl create namespace slurm-demo --dry-run=client -o yaml | kubectl apply -f -
  "$engine" exec "$slurm" scontrol token username=root lifespan=86400 |
    kubectl -n slurm-bridge create secret generic slurm-bridge-token \
      --from-file=auth-token=/dev/stdin --dry-run=client -o yaml | kubectl apply -f -
  address=$("$engine" inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$slurm")
  helm upgrade --install slurm-bridge deploy/helm/slurm-bridge --namespace slurm-bridge \
    --set config.slurm.url="http://$address:6820" --set config.slurm.allowPlainHttp=true --set 'config.namespaces={slurm-demo}' \
    --set 'config.identity[0].namespace=slurm-demo' --set 'config.identity[0].user=daemon' --wait
  kubectl label node --overwrite -l '!node-role.kubernetes.io/control-plane' slurm-sdk/external-node=
  echo "try: kubectl -n slurm-demo run hello --image=busybox --restart=Never -- sleep 60"
}

case ${1:-} in
  up) up ;;
  down) need kind; kind delete cluster --name "$name"; "$engine" rm -f "$slurm" >/dev/null ;;
  status)
    kubectl -n slurm-bridge get pods
    kubectl -n slurm-bridge exec deploy/slurm-bridge -- /opt/slurm/bin/slurm bridge doctor ;;
  *) sed -n '2,7p' "$0"; exit 2 ;;
esac
