#!/bin/sh
# scorecard.sh makes the table of docs/scorecard.md: every attack, in every setting. With IMAGE it attacks that image
# alone, and prints a table of it.
#
#   test/scorecard.sh                write docs/scorecard.md
#   PART=gateway test/scorecard.sh   attack from behind gateways alone, and write what came of it there
#   IMAGE=foo/bar test/scorecard.sh  an image of the engine that this shell uses; see docs/scorecard.md for
#                                    OPTIONS, SETUP, AGENT, PROXY, WRAP, NETWORK, ALLOWED, WILDCARD, OURS
#   SUBJECTS='squid fence' test/scorecard.sh   set-ups of other tools, of test/subjects; all: each of them. It writes
#                                    what came of it beside each, and docs/subjects.md
#
# JSON=FILE has the results written for programs, BADGE=FILE a picture of their sum.
# AGENT_INIT_BIN, KEEP_ENGINE: see with-engine.sh.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=test/with-engine.sh
. test/with-engine.sh

test/prepare.sh scorecard

base_context "$context"
export AGENT_INIT_BIN="$context/bin/agent-init"
CGO_ENABLED=0 go build -o "$context/scorecard" ./internal/lab/cmd/scorecard

theirs=${DOCKER_HOST:-}
use_engine
debian=$(test/base-image.sh)

if [ -n "${SUBJECTS:-}" ]; then
	[ "$SUBJECTS" != all ] || SUBJECTS=$(ls test/subjects)
	for subject in $SUBJECTS; do
		image=$(test/subject-image.sh "$subject")
		# It ends with 1 where something leaks. Without a result it has failed.
		"$context/scorecard" -image "$image" -peer "$debian" -subject "test/subjects/$subject/subject.json" -json "$context/result.json" ||
			[ -e "$context/result.json" ]
		mv "$context/result.json" "test/subjects/$subject/result.json"
	done
	"$context/scorecard" -subjects docs/subjects.md test/subjects/*/result.json
	exit
fi

set --
[ -z "${JSON:-}" ] || set -- "$@" -json "$JSON"
[ -z "${BADGE:-}" ] || set -- "$@" -badge "$BADGE"
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
	set -- "$@" -image "$IMAGE" -peer "$debian" -options "${OPTIONS:-}" -setup "${SETUP:-}" -as "${AGENT:-1000}" -allowed "${ALLOWED-api.anthropic.com}" \
		-wildcard "${WILDCARD:-}" -proxy "${PROXY:-}" -wrap "${WRAP:-}"
	[ -z "${NETWORK:-}" ] || set -- "$@" -network
	[ -z "${OURS:-}" ] || set -- "$@" -ours
	"$context/scorecard" "$@"
	exit
fi

docker build -q --network=none --build-arg DEBIAN="$debian" -f Dockerfile.base --target debian -t agent-init-test/agent-base "$context" >/dev/null
case ${PART:-} in
gateway) set -- "$@" -gateway ;;
"")
	script=$(test/xtables-image.sh "$debian" agent-init-test/debian-iptables)
	set -- "$@" -script "$script"
	;;
*)
	echo "scorecard.sh: there is no part $PART" >&2
	exit 64
	;;
esac
docker image prune -f >/dev/null
"$context/scorecard" "$@" -base agent-init-test/agent-base -peer "$debian" -policy "$PWD/test/scorecard" -write docs/scorecard.md
