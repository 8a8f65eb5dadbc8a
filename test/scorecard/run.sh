#!/bin/sh
# run.sh is the entrypoint of the scorecard's image: it starts an engine that has no way out, loads the image /subject.tar
# into it, attacks from inside of that, and leaves the results in /out. Its arguments are those of the command scorecard.
#
#   docker run --rm --privileged -v "$PWD:/out" -v "$PWD/subject.tar:/subject.tar:ro" agent-scorecard -subject /out/subject.json
set -eu
here=$(dirname "$0")

fail() {
	echo "scorecard: $*" >&2
	exit 2
}
[ -e /subject.tar ] || fail "mount the image, as docker save writes it: -v \"\$PWD/subject.tar:/subject.tar:ro\""
[ -d /out ] || fail "mount a directory for the results: -v \"\$PWD:/out\""
ip link add scorecard type veth peer scorecard-far 2>/dev/null || fail "it takes docker run --privileged: it starts an engine, and makes networks"
ip link del scorecard

# A process in the root of cgroup v2 would keep an engine from making groups below it.
groups=/sys/fs/cgroup
if [ -e "$groups/cgroup.controllers" ]; then
	mkdir -p "$groups/scorecard"
	while read -r pid; do
		echo "$pid" 2>/dev/null >"$groups/scorecard/cgroup.procs" || true # one that has ended
	done <"$groups/cgroup.procs"
	sed 's/^/+/; s/ / +/g' "$groups/cgroup.controllers" >"$groups/cgroup.subtree_control"
fi

engine=$("$here/engine.sh" start)
trap '"$here/engine.sh" stop' EXIT
trap 'exit 130' HUP INT TERM
export DOCKER_HOST="${engine#DOCKER_HOST=}"

# The neighbour on the network has one program.
mkdir -p /tmp/neighbour/bin
cp /bin/busybox /tmp/neighbour/bin/sleep
tar -C /tmp/neighbour -c . | docker import - scorecard-neighbour >/dev/null

image=$(docker load -i /subject.tar | sed -n 's/^Loaded image\( ID\)\{0,1\}: //p' | head -n 1)
[ -n "$image" ] || fail "there is no image in /subject.tar"
"$here/bin/scorecard" -image "$image" -peer scorecard-neighbour -json /out/scorecard.json -badge /out/scorecard.svg "$@"
