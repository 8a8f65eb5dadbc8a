#!/bin/sh
# scorecard-image.sh builds the scorecard's own image, agent-scorecard, with the engine that this shell uses.
#
#   test/scorecard-image.sh           on Debian's image, with a network at build time
#   test/scorecard-image.sh BASE TAG  on an image that has the packages of test/scorecard/Dockerfile, without one
set -eu
cd "$(dirname "$0")/.."

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
trap 'exit 130' HUP INT TERM
mkdir -p "$context/scorecard/bin"
CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$context/scorecard/bin/" ./internal/lab/cmd/scorecard ./internal/lab/cmd/labbox ./internal/lab/cmd/poke
cp test/engine.sh test/debian.sh test/scorecard/run.sh "$context/scorecard"
cp test/scorecard/Dockerfile "$context"
[ $# -eq 0 ] || set -- --network=none --build-arg DEBIAN="$1" --build-arg PACKAGES= -t "$2"
[ $# -gt 0 ] || set -- -t agent-scorecard
docker build -q "$@" "$context"
