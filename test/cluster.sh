#!/bin/sh
# cluster.sh starts a private Kubernetes cluster of one node for the tests of places, and stops it.
#
#   test/cluster.sh start         start it, if it is not running, and wait until its node is ready
#   test/cluster.sh stop          stop it by its own process id; everything it made goes with it
#   test/cluster.sh status        print the process id of the first process in its namespaces, else exit 1
#   test/cluster.sh enter CMD…    run a command in its namespaces
#   test/cluster.sh kubectl …     ask it
#
# API server, controllers, scheduler, kubelet, kube-proxy and etcd are one program, that of test/cluster, whose directory
# AGENT_INIT_CLUSTER names (test/places/cluster.sh builds it). The rest is Debian's: containerd, runc, CNI plugins. All of
# it lives in namespaces of its own, from which no packet leaves this machine. AGENT_INIT_CLUSTER_STATE is where it keeps
# what it has; it runs the images that lie there as images/*.tar.
#
# ours and the like are questions, and made to be: set -e is off in what is asked.
# shellcheck disable=SC2310
set -eu

here=$(cd "$(dirname "$0")" && pwd)
state=${AGENT_INIT_CLUSTER_STATE:-${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}/cluster}
pidfile=$state/node.pid
group=agent-init-cluster-$(echo "$state" | cksum | cut -d ' ' -f 1) # the control group of all pods

fail() {
	echo "cluster.sh: $*" >&2
	exit 1
}

# ours prints the process id of unshare, if it is ours.
ours() {
	[ -r "$pidfile" ] || return 1
	pid=$(cat "$pidfile")
	tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$here/cluster/node.sh $state " || return 1
	echo "$pid"
}

# first prints the process id of the first process in there.
first() {
	outer=$(ours) || return 1
	children=$(cat "/proc/$outer/task/$outer/children" 2>/dev/null)
	[ -n "$children" ] || return 1
	echo "${children%% *}"
}

enter() {
	inner=$(first) || fail "it does not run"
	nsenter --net --mount --uts --ipc --pid --wdns="$PWD" --target "$inner" -- "$@"
}

kubectl() {
	enter env KUBECONFIG="$state/pki/admin.conf" HOME="$state" "$state/links/kubectl" "$@"
}

# hierarchies are where control groups are, of version 1 or 2.
hierarchies() {
	awk '($3 == "cgroup" || $3 == "cgroup2") && $2 ~ "^/sys/fs/cgroup" {print $2}' /proc/mounts
}

# await COMMAND… asks for three minutes, as long as the cluster runs.
await() {
	tries=0
	until ("$@") >/dev/null 2>&1; do
		tries=$((tries + 1))
		if ! ours >/dev/null || [ "$tries" -gt 600 ]; then
			tail -n 5 "$state"/log/*.log >&2
			fail "$* fails; its logs are in $state/log"
		fi
		sleep 0.3
	done
}

make_groups() {
	for h in $(hierarchies); do
		mkdir -p "$h/$group"
		# A new cpuset of version 1 has no processor and no memory.
		for f in cpuset.cpus cpuset.mems; do
			[ ! -e "$h/$f" ] || cat "$h/$f" >"$h/$group/$f"
		done
	done
}

remove_groups() {
	for h in $(hierarchies); do
		tries=0
		while [ -d "$h/$group" ] && ! find "$h/$group" -depth -type d -exec rmdir {} + 2>/dev/null; do
			tries=$((tries + 1))
			[ "$tries" -le 300 ] || fail "$h/$group stays"
			sleep 0.1
		done
	done
}

start() {
	user=$(id -u)
	[ "$user" -eq 0 ] || fail "must be root: a cluster is started"
	if ours >/dev/null; then
		return
	fi
	programs=${AGENT_INIT_CLUSTER:?names the directory of the programs}
	stop
	mkdir -p "$state/log" "$state/links"
	rm -f "$state"/log/*
	for program in etcd kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubectl kubelet; do
		ln -sf "$programs/kubeone" "$state/links/$program"
	done
	"$here/cluster/pki.sh" "$state/pki" 172.29.0.1 10.96.0.1 127.0.0.1
	make_groups
	setsid unshare --net --mount --propagation private --uts --ipc --pid --fork --kill-child --mount-proc \
		"$here/cluster/node.sh" "$state" "$group" </dev/null >"$state/log/node.log" 2>&1 &
	echo $! >"$pidfile"
	await kubectl get --raw /readyz
	await kubectl wait --for=condition=Ready node/node --timeout=1s
	await kubectl get serviceaccount default
}

stop() {
	if pid=$(ours); then
		inner=$(first) && kill -TERM "$inner"
		tries=0
		while kill -0 "$pid" 2>/dev/null; do
			tries=$((tries + 1))
			# With it goes all that it started, by --kill-child.
			[ "$tries" -le 100 ] || kill -KILL "$pid"
			[ "$tries" -le 300 ] || fail "the node (process $pid) does not end"
			sleep 0.2
		done
	fi
	remove_groups
	rm -rf --one-file-system "${state:?}/containerd" "$state/etcd" "${state:?}/var" "$state/pki" "$state/cni"
	rm -f "$state"/*.pid
	if [ -e "$state/made" ]; then
		while read -r dir; do rmdir "$dir"; done <"$state/made"
		rm "$state/made"
	fi
}

case ${1:-} in
start) start ;;
stop) stop ;;
status) first || fail "not running" ;;
enter)
	shift
	enter "$@"
	;;
kubectl)
	shift
	kubectl "$@"
	;;
*) fail "usage: test/cluster.sh start|stop|status|enter|kubectl" ;;
esac
