#!/bin/sh
# cluster.sh gets what the tests on a real Kubernetes cluster need: Debian's containerd, and the programs of test/cluster,
# which take minutes to build, once for each version. It prints where they are, and where the cluster is to be.
set -eu
cd "$(dirname "$0")/../.."

test/debian.sh install containerd:containerd runc:runc /usr/lib/cni/bridge:containernetworking-plugins iptables:iptables \
	nft:nftables nsenter:util-linux ip:iproute2 openssl:openssl
cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
sum=$(cat test/cluster/go.* test/cluster/*/*.go test/places/cluster.sh | sha256sum | cut -c1-16)
programs=$cache/kubernetes-$sum
if [ ! -d "$programs" ]; then
	mkdir -p "$cache"
	rm -rf "$cache"/kubernetes-* "$programs.part"
	mkdir "$programs.part"
	echo "cluster.sh: building Kubernetes" >&2
	version=$(cd test/cluster && go list -m -f '{{.Version}}' k8s.io/kubernetes)
	minor=${version#v1.}
	v=k8s.io/component-base/version
	(cd test/cluster && CGO_ENABLED=0 nice go build -trimpath -o "$programs.part/" -ldflags "-s -w \
		-X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*} -X $v.gitTreeState=clean" ./kubeone ./pause) >&2
	mv "$programs.part" "$programs"
fi
# The engine carries the image of the process that holds a pod to where the others are.
tar -C "$programs" -cf - pause | docker import --change 'ENTRYPOINT ["/pause"]' --change 'USER 65535' - localhost/pause:test >/dev/null
charts=$(test/charts.sh)
echo "AGENT_INIT_CHARTS=$charts"
echo "AGENT_INIT_CLUSTER=$programs"
echo "AGENT_INIT_CLUSTER_STATE=$cache/cluster"
