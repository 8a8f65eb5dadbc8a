# shellcheck shell=sh
# with-engine.sh is the beginning of each script that tests in containers, which reads it with "." at the top of the tree:
# a directory $context that is gone at the end, however the script ends, and the private engine with it, unless
# KEEP_ENGINE=1. The binary under test is built from this tree, or is the one that AGENT_INIT_BIN names.

AGENT_INIT_TEST_CACHE=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
export AGENT_INIT_TEST_CACHE
context=$(mktemp -d)
finish() {
	rm -rf "$context"
	[ "${KEEP_ENGINE:-}" = 1 ] || test/engine.sh stop
}
trap finish EXIT
trap 'exit 130' HUP INT TERM

# base_context makes what Dockerfile.base takes of this tree in a directory, with the binary under test.
base_context() {
	mkdir -p "$1/images"
	cp images/agent.sh images/shell.bash "$1/images"
	binary_at "$1/bin/agent-init"
}

# binary_at puts the binary under test where it says.
binary_at() {
	mkdir -p "${1%/*}"
	if [ -n "${AGENT_INIT_BIN:-}" ]; then
		cp "$AGENT_INIT_BIN" "$1"
	else
		CGO_ENABLED=0 go build -trimpath -ldflags='-s -w -funcalign=16' -o "$1" ./cmd/agent-init
	fi
}

# use_engine starts the engine, and has docker ask it. What a run that was killed has left there is removed: its networks
# have addresses that this run needs.
use_engine() {
	engine=$(test/engine.sh start)
	export DOCKER_HOST="${engine#DOCKER_HOST=}"
	# A client without the BuildKit component can only do without BuildKit.
	docker buildx version >/dev/null 2>&1 || export DOCKER_BUILDKIT=0
	left=$(docker ps -aq)
	# shellcheck disable=SC2086 # a list
	[ -z "$left" ] || docker rm -f -v $left >/dev/null
	docker network prune -f >/dev/null
}
