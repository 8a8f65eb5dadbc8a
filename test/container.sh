#!/bin/sh
# container.sh runs the container tests from nothing: the private engine, an image to build on, the
# images under test, the tests, and the engine's end. Arguments go to "go test": -run, -v, … The images of
# the other agents are agents.sh's, the further base images images.sh's.
#
# The binary under test is built from this tree, or is the one that AGENT_INIT_BIN names.
# KEEP_ENGINE=1 leaves the engine running for the next time.
set -eu
cd "$(dirname "$0")/.."

AGENT_INIT_TEST_CACHE=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
export AGENT_INIT_TEST_CACHE
context=$(mktemp -d)
finish() {
	rm -r "$context"
	[ "${KEEP_ENGINE:-}" = 1 ] || test/engine.sh stop
}
trap finish EXIT
trap 'exit 130' INT TERM

# The binary is all of the repository that the base image takes.
mkdir "$context/bin"
if [ -n "${AGENT_INIT_BIN:-}" ]; then
	cp "$AGENT_INIT_BIN" "$context/bin/agent-init"
else
	CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$context/bin/agent-init" ./cmd/agent-init
fi

engine=$(test/engine.sh start)
export DOCKER_HOST="${engine#DOCKER_HOST=}"
# A client without the BuildKit component can only do without BuildKit.
docker buildx version >/dev/null 2>&1 || export DOCKER_BUILDKIT=0

debian=$(test/base-image.sh)
images/fetch.sh claude >/dev/null
docker build -q --network=none --build-arg DEBIAN="$debian" -f Dockerfile.base --target debian -t agent-init-test/agent-base "$context"
docker build -q --network=none --build-arg BASE=agent-init-test/agent-base -t agent-init-test/agent-claude images/claude
AGENT_INIT_XTABLES_IMAGE=$(test/xtables-image.sh agent-init-test/agent-claude agent-init-test/agent-claude-xtables)
export AGENT_INIT_XTABLES_IMAGE
# Layers that nothing refers to any more would pile up: the executable in them is large.
docker image prune -f >/dev/null

export AGENT_INIT_MUST_RUN=1 AGENT_INIT_IMAGE=agent-init-test/agent-base AGENT_INIT_CLAUDE_IMAGE=agent-init-test/agent-claude
go test -count=1 -timeout 20m -skip '^TestContainer(Agents|Images|Places)' "$@" ./test/container
