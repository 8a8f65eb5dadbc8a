#!/bin/sh
# subject-image.sh builds the image of a subject of the scorecard, without a network at build time, and prints its name:
#
#   test/subject-image.sh NAME
#
# test/subjects/NAME has a Dockerfile, the Debian packages that it builds on, and, if it takes more, a get.sh that puts that
# into the context.
set -eu
cd "$(dirname "$0")/.."

dir=test/subjects/$1
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
trap 'exit 130' HUP INT TERM
packages=$(cat "$dir/packages")
# shellcheck disable=SC2086 # a list
base=$(test/deb-image.sh "agent-init-test/subject-$1-debian" $packages)
cp -r "$dir/." "$context"
[ ! -e "$dir/get.sh" ] || "$dir/get.sh" "$context"
docker build -q --network=none --build-arg BASE="$base" -t "agent-init-test/subject-$1" "$context" >"$context/log" 2>&1 || {
	tail -n 20 "$context/log" >&2
	exit 1
}
echo "agent-init-test/subject-$1"
