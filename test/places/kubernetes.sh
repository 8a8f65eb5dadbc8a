#!/bin/sh
# kubernetes.sh gets what the tests of the Kubernetes manifests need, and prints where kustomize is, and the program that
# checks manifests.
set -eu
cd "$(dirname "$0")/../.."

test/places/podman.sh
program=$(test/kubecheck.sh)
render=$(test/render.sh)
echo "AGENT_INIT_KUBECHECK=$program"
echo "AGENT_INIT_RENDER=$render"
