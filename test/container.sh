#!/bin/sh
# container.sh runs the container tests from nothing: the private engine, an image to build on, the
# images under test, the tests, and the engine's end. Arguments go to "go test": -run, -v, … The images of
# the other agents are agents.sh's, the further base images images.sh's.
#
# AGENT_INIT_BIN, KEEP_ENGINE: see with-engine.sh.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=test/with-engine.sh
. test/with-engine.sh

base_context "$context"
use_engine
debian=$(test/base-image.sh)
images/fetch.sh claude >/dev/null
docker build -q --network=none --build-arg DEBIAN="$debian" -f Dockerfile.base --target debian -t agent-init-test/agent-base "$context"
docker build -q --network=none --build-arg BASE=agent-init-test/agent-base -t agent-init-test/agent-claude images/claude
AGENT_INIT_XTABLES_IMAGE=$(test/xtables-image.sh agent-init-test/agent-claude agent-init-test/agent-claude-xtables)
export AGENT_INIT_XTABLES_IMAGE
# Layers that nothing refers to any more would pile up: the executable in them is large.
docker image prune -f >/dev/null

export AGENT_INIT_MUST_RUN=1 AGENT_INIT_IMAGE=agent-init-test/agent-base AGENT_INIT_CLAUDE_IMAGE=agent-init-test/agent-claude
go test -count=1 -timeout 60m -skip '^TestContainer(Agents|Images|Places)' "$@" ./test/container
