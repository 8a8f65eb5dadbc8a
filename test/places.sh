#!/bin/sh
# places.sh runs the tests of the places that people start agents in, each with its own client: places.sh [PLACE…].
#
# test/places/PLACE.sh, where there is one, gets what the place needs, once, and prints it as NAME=VALUE for the tests
# named TestContainerPlaces… in test/container. GOTESTFLAGS go to "go test": -v, -run is taken. PART is one subtest.
#
# AGENT_INIT_BIN, KEEP_ENGINE: see with-engine.sh.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=test/with-engine.sh
. test/with-engine.sh

[ $# -gt 0 ] || set -- docker
case " $* " in *" cluster "*) trap 'test/cluster.sh stop; finish' EXIT ;; esac

base_context "$context"
export AGENT_INIT_BIN="$context/bin/agent-init"
use_engine

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
go test -count=1 -timeout 60m -run "^(?i:TestContainerPlaces(${pattern%|}))${PART:+/^$PART\$}" ${GOTESTFLAGS:-} ./test/container
