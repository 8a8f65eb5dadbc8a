#!/bin/sh
# node.sh STATE GROUP is the first process of the namespaces that cluster.sh makes. The parts of the cluster are its
# children, and end with it. GROUP is the control group of all pods.
set -eu
PATH=$PATH:/usr/sbin:/sbin
state=$1 group=$2
address=172.29.0.1 pods=10.244.0.0/24 services=10.96.0.0/16
pki=$state/pki links=$state/links cni=/usr/lib/cni socket=/run/cluster/containerd.sock

fail() {
	echo "node.sh: $*" >&2
	exit 1
}

# part NAME COMMAND… starts a part of the cluster, with a log of its own. Its process id is in a file.
part() {
	name=$1
	shift
	"$@" >>"$state/log/$name.log" 2>&1 &
	echo $! >"$state/$name.pid"
}

# await COMMAND… asks for two minutes.
await() {
	tries=0
	until "$@" >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ "$tries" -le 1200 ] || fail "$* fails"
		sleep 0.1
	done
}

# A kernel may have no dummy devices: the node's address is the loopback device's. There is no way out.
network() {
	hostname node
	ip link set lo up
	ip address add "$address/32" dev lo
	echo 1 >/proc/sys/net/ipv4/ip_forward
}

# What the parts write under fixed names is the state's, and what is the whole machine's they are shown as files.
mounts() {
	mount -t tmpfs -o mode=755 tmpfs /run
	mkdir -p /run/netns /run/lock /run/cluster
	for dir in /var/log /var/lib/cni /var/lib/kubelet; do
		mkdir -p "$state/var$dir"
		if [ ! -d "$dir" ]; then
			mkdir "$dir"
			echo "$dir" >>"$state/made" # cluster.sh takes it away again
		fi
		mount --bind "$state/var$dir" "$dir"
	done
	for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
		file=$state/var/sys/$setting
		mkdir -p "${file%/*}"
		cat "/proc/sys/$setting" >"$file"
		mount --bind "$file" "/proc/sys/$setting"
	done
	mount --make-rshared /
}

# restrict_oom_score_adj: root may lack CAP_SYS_RESOURCE here.
configure() {
	mkdir -p "$state/cni"
	cat >"$state/cni/10-bridge.conflist" <<EOF
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$pods"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOF
	cat >"$state/containerd.toml" <<EOF
version = 2
root = "$state/containerd"
state = "/run/cluster/containerd"
[grpc]
  address = "$socket"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:test"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$cni"
    conf_dir = "$state/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
EOF
	echo "nameserver $address" >"$state/resolv.conf"
	cat >"$state/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $address
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: /$group
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://$socket
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100 # an imported image can't be pulled again
imageMaximumGCAge: 0s
resolvConf: $state/resolv.conf
syncFrequency: 10s
volumePluginDir: /var/lib/kubelet/flex
tlsCertFile: $pki/kubelet.crt
tlsPrivateKeyFile: $pki/kubelet.key
EOF
	cat >"$state/proxy.yaml" <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: $pki/proxy.conf}
clusterCIDR: $pods
conntrack: {maxPerCore: 0}
hostnameOverride: node
EOF
}

start_kubelet() {
	part kubelet "$links/kubelet" --config="$state/kubelet.yaml" --kubeconfig="$pki/kubelet.conf" --hostname-override=node \
		--node-ip="$address" --root-dir=/var/lib/kubelet
}

parts() {
	part containerd containerd --config "$state/containerd.toml"
	part etcd "$links/etcd" --name node --data-dir "$state/etcd" --unsafe-no-fsync \
		--listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
		--listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
		--initial-cluster node=http://127.0.0.1:2380
	part apiserver "$links/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
		--advertise-address="$address" --bind-address="$address" --secure-port=6443 --service-cluster-ip-range="$services" \
		--allow-privileged --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
		--client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
		--kubelet-certificate-authority="$pki/ca.crt" --kubelet-client-certificate="$pki/admin.crt" \
		--kubelet-client-key="$pki/admin.key" --kubelet-preferred-address-types=InternalIP \
		--service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$pki/accounts.pub" \
		--service-account-signing-key-file="$pki/accounts.key"
	await test -S "$socket"
	await ctr --address "$socket" version
	for image in "$state"/images/*.tar; do
		ctr --address "$socket" --namespace k8s.io images import "$image" >>"$state/log/images.log" 2>&1 || fail "$image is no image; see $state/log/images.log"
	done
	await env KUBECONFIG="$pki/admin.conf" "$links/kubectl" get --raw /readyz
	start_kubelet
	part scheduler "$links/kube-scheduler" --kubeconfig="$pki/scheduler.conf" --leader-elect=false
	part manager "$links/kube-controller-manager" --kubeconfig="$pki/manager.conf" --leader-elect=false \
		--service-account-private-key-file="$pki/accounts.key" --root-ca-file="$pki/ca.crt" --use-service-account-credentials \
		--flex-volume-plugin-dir=/var/lib/kubelet/flex
	part proxy "$links/kube-proxy" --config="$state/proxy.yaml"
}

network
mounts
configure
parts
# It reaps what containerd's shims leave to it, until it is told to end. A kubelet that a test has killed is started again.
trap 'exit 0' TERM INT
while :; do
	sleep 1 &
	wait $! || true
	read -r kubelet <"$state/kubelet.pid"
	kill -0 "$kubelet" 2>/dev/null || start_kubelet
done
