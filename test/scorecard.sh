#!/bin/sh
# scorecard.sh makes the table of docs/scorecard.md: every attack, in every setting. With IMAGE it attacks that image
# alone, and prints a table of it.
#
#   test/scorecard.sh                write docs/scorecard.md
#   IMAGE=foo/bar test/scorecard.sh  an image of the engine that this shell uses; see docs/scorecard.md for
#                                    OPTIONS, SETUP, AGENT, NETWORK, ALLOWED, WILDCARD, OURS
#
# The binary under test is built from this tree, or is the one that AGENT_INIT_BIN names.
# KEEP_ENGINE=1 leaves the engine running for the next time.
set -eu
cd "$(dirname "$0")/.."

AGENT_INIT_TEST_CACHE=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
export AGENT_INIT_TEST_CACHE
test/prepare.sh scorecard
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
CGO_ENABLED=0 go build -o "$context/scorecard" ./internal/lab/cmd/scorecard

theirs=${DOCKER_HOST:-}
engine=$(test/engine.sh start)
export DOCKER_HOST="${engine#DOCKER_HOST=}"
docker buildx version >/dev/null 2>&1 || export DOCKER_BUILDKIT=0
debian=$(test/base-image.sh)

if [ -n "${IMAGE:-}" ]; then
	# An image that the private engine lacks comes from the one that this shell uses: the private one has no network.
	if ! docker image inspect "$IMAGE" >/dev/null 2>&1; then
		if [ -n "$theirs" ]; then
			DOCKER_HOST=$theirs docker save -o "$context/image.tar" "$IMAGE"
		else
			(unset DOCKER_HOST && docker save -o "$context/image.tar" "$IMAGE")
		fi
		docker load -q -i "$context/image.tar" >/dev/null
	fi
	set -- -image "$IMAGE" -peer "$debian" -options "${OPTIONS:-}" -setup "${SETUP:-}" -as "${AGENT:-1000}" -allowed "${ALLOWED-api.anthropic.com}" \
		-wildcard "${WILDCARD:-}"
	[ -z "${NETWORK:-}" ] || set -- "$@" -network
	[ -z "${OURS:-}" ] || set -- "$@" -ours
	"$context/scorecard" "$@"
	exit
fi

docker build -q --network=none --build-arg DEBIAN="$debian" -f Dockerfile.base --target debian -t agent-init-test/agent-base "$context" >/dev/null
script=$(test/xtables-image.sh "$debian" agent-init-test/debian-iptables)
docker image prune -f >/dev/null
"$context/scorecard" -base agent-init-test/agent-base -peer "$debian" -script "$script" -policy "$PWD/test/scorecard" -write docs/scorecard.md
