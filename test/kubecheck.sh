#!/bin/sh
# kubecheck.sh prints where the program is that checks Kubernetes' manifests: test/kubecheck, made of Kubernetes' own code,
# which takes minutes to build, once for each version.
set -eu
cd "$(dirname "$0")/.."

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
sum=$(cat test/kubecheck/* | sha256sum | cut -c1-16)
program=$cache/kubecheck-$sum
if [ ! -x "$program" ]; then
	mkdir -p "$cache"
	rm -f "$cache"/kubecheck-*
	echo "kubecheck.sh: building test/kubecheck" >&2
	(cd test/kubecheck && CGO_ENABLED=0 nice go build -o "$program.part" .) >&2
	mv "$program.part" "$program"
fi
echo "$program"
