#!/bin/sh
# engine.sh starts a private container engine for the container tests, and stops it.
#
#   test/engine.sh [start]   start it if it is not running; print DOCKER_HOST=...
#   test/engine.sh stop      stop it by its own process id; everything it made goes with it
#   test/engine.sh status    print DOCKER_HOST=... if it runs, else exit 1
#
# The engine lives in a network namespace of its own that has a loopback device and nothing else. No
# container can send a packet out of this machine, whatever a test tries, and the engine's bridges and
# netfilter rules never touch the machine's own: they end with the namespace. What a test wants to be
# "the internet" it puts on addresses of that namespace.
#
# Images are kept in AGENT_INIT_TEST_CACHE (default: agent-init-test under XDG_CACHE_HOME or
# /var/cache), so that a second start takes a second. AGENT_INIT_TEST_RUN is where it runs: another one
# there is another engine, with images of its own.
# ours and answering are questions, and made to be: set -e is off in what is asked.
# shellcheck disable=SC2310
set -eu

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
run=${AGENT_INIT_TEST_RUN:-/run/agent-init-test}
socket=$run/docker.sock
pidfile=$run/docker.pid
name=docker
[ "$run" = /run/agent-init-test ] || name=docker-$(echo "$run" | cksum | cut -d ' ' -f 1)
data=$cache/$name
log=$cache/$name.log
here=$(dirname "$0")

# The resolver that the engine's own DNS forwards to. The tests put a server on this address inside
# the engine's namespace; nothing is sent to the real one.
resolver=9.9.9.9

fail() {
	echo "engine.sh: $*" >&2
	exit 1
}

# ours prints the engine's process id, if the pidfile's process is the engine that we started.
ours() {
	[ -r "$pidfile" ] || return 1
	pid=$(cat "$pidfile")
	tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "--pidfile=$pidfile" || return 1
	echo "$pid"
}

# answering says whether an engine answers on our socket.
answering() {
	DOCKER_HOST=unix://$socket docker version >/dev/null 2>&1
}

install_engine() {
	"$here/debian.sh" install dockerd:docker.io docker:docker.io iptables:iptables ip:iproute2
}

# mount_cgroups gives the engine the cgroup v1 hierarchies that it needs on a machine that mounted
# none. A machine with a hierarchy mounted, v1 or v2, is left as it is.
mount_cgroups() {
	[ ! -e /sys/fs/cgroup/cgroup.controllers ] || return 0
	! grep -q '^[^ ]* [^ ]* cgroup ' /proc/mounts || return 0
	grep -q '^[^ ]* /sys/fs/cgroup ' /proc/mounts || mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
	names=$(awk '!/^#/ && $4 == 1 {print $1}' /proc/cgroups)
	for name in $names; do
		mkdir -p "/sys/fs/cgroup/$name"
		mount -t cgroup -o "$name" cgroup "/sys/fs/cgroup/$name" || rmdir "/sys/fs/cgroup/$name"
	done
}

start() {
	user=$(id -u)
	[ "$user" -eq 0 ] || fail "must be root: a container engine is started"
	if ours >/dev/null && answering; then
		echo "DOCKER_HOST=unix://$socket"
		return
	fi
	install_engine
	mount_cgroups
	stop
	mkdir -p "$cache" "$run"
	chmod 0700 "$run"
	# The loopback is brought up before the engine starts in the same, new namespace.
	# shellcheck disable=SC2016
	setsid unshare --net sh -c 'ip link set lo up && exec "$@"' engine \
		dockerd \
		--host="unix://$socket" \
		--pidfile="$pidfile" \
		--data-root="$data" \
		--exec-root="$run/exec" \
		--containerd-namespace=agent-init-test \
		--containerd-plugins-namespace=agent-init-test-plugins \
		--bip=172.30.0.1/24 \
		--default-address-pool=base=172.31.0.0/16,size=24 \
		--ipv6 --fixed-cidr-v6=2001:db8:30::/64 \
		--dns="$resolver" \
		--log-driver=json-file \
		--shutdown-timeout=5 \
		</dev/null >"$log" 2>&1 &
	child=$!
	# In a session of its own, it would outlive us, and nobody would know it before it has written its pidfile.
	trap 'kill "$child" 2>/dev/null; wait "$child"; exit 130' HUP INT TERM
	tries=0
	until answering; do
		tries=$((tries + 1))
		if ! kill -0 "$child" 2>/dev/null || [ "$tries" -gt 150 ]; then
			kill "$child" 2>/dev/null || true
			wait "$child" || true
			tail -n 20 "$log" >&2
			fail "the engine did not start; its log is $log"
		fi
		sleep 0.2
	done
	echo "DOCKER_HOST=unix://$socket"
}

# clear removes what an engine of ours left in $run. A mount that is left there, such as the network
# namespace of a container on the engine's own network, would keep the whole namespace alive.
clear() {
	# One that kept its containers (--live-restore) has left its data mounted, too.
	awk -v under="$run/" -v data="$data" 'index($2, under) == 1 || $2 == data || index($2, data "/") == 1 {print $2}' /proc/mounts | sort -r | while read -r mount; do
		umount "$mount"
	done
	rm -rf "$run"
}

stop() {
	if pid=$(ours); then
		kill -TERM "$pid"
		tries=0
		while kill -0 "$pid" 2>/dev/null; do
			tries=$((tries + 1))
			[ "$tries" -le 150 ] || fail "the engine (process $pid) does not end"
			sleep 0.2
		done
	fi
	clear
}

case ${1:-start} in
start) start ;;
stop) stop ;;
status)
	if ours >/dev/null && answering; then
		echo "DOCKER_HOST=unix://$socket"
	else
		echo "not running"
		exit 1
	fi
	;;
*) fail "usage: test/engine.sh [start|stop|status]" ;;
esac
