#!/bin/sh
# places.sh runs the tests of the places that people start agents in, each with its own client: places.sh [PLACE…].
#
# test/places/PLACE.sh, where there is one, gets what the place needs, once, and prints it as NAME=VALUE for the tests
# named TestContainerPlaces… in test/container. GOTESTFLAGS go to "go test": -v, -run is taken.
#
# The binary under test is built from this tree, or is the one that AGENT_INIT_BIN names.
# KEEP_ENGINE=1 leaves the engine running for the next time.
set -eu
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- docker
AGENT_INIT_TEST_CACHE=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
export AGENT_INIT_TEST_CACHE
context=$(mktemp -d)
finish() {
	rm -r "$context"
	[ "${KEEP_ENGINE:-}" = 1 ] || test/engine.sh stop
}
trap finish EXIT
trap 'exit 130' INT TERM

mkdir "$context/bin"
if [ -n "${AGENT_INIT_BIN:-}" ]; then
	cp "$AGENT_INIT_BIN" "$context/bin/agent-init"
else
	CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$context/bin/agent-init" ./cmd/agent-init
fi
export AGENT_INIT_BIN="$context/bin/agent-init"

engine=$(test/engine.sh start)
export DOCKER_HOST="${engine#DOCKER_HOST=}"
docker buildx version >/dev/null 2>&1 || export DOCKER_BUILDKIT=0

debian=$(test/base-image.sh)
images/fetch.sh claude >/dev/null
docker build -q --network=none --build-arg DEBIAN="$debian" -f Dockerfile.base --target debian -t agent-init-test/agent-base "$context"
docker build -q --network=none --build-arg BASE=agent-init-test/agent-base -t agent-init-test/agent-claude images/claude
docker image prune -f >/dev/null

export AGENT_INIT_MUST_RUN=1 AGENT_INIT_IMAGE=agent-init-test/agent-base AGENT_INIT_CLAUDE_IMAGE=agent-init-test/agent-claude
for place; do
	if [ -x "test/places/$place.sh" ]; then
		vars=$("test/places/$place.sh")
		# Lines of NAME=VALUE, in the order that they were printed.
		while IFS= read -r line; do
			[ -z "$line" ] || export "${line?}"
		done <<EOF
$vars
EOF
	fi
done
pattern=$(printf '%s|' "$@")
# GOTESTFLAGS is a list.
# shellcheck disable=SC2086
go test -count=1 -timeout 40m -run "^(?i:TestContainerPlaces(${pattern%|}))" ${GOTESTFLAGS:-} ./test/container
