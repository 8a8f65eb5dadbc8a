#!/bin/sh
# charts.sh prints the directory of helm, which is the tool of the module test/charts and takes minutes to build, once for each
# version.
set -eu
cd "$(dirname "$0")/.."

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
sum=$(cat test/charts/* test/charts.sh | sha256sum | cut -c1-16)
programs=$cache/charts-$sum
if [ ! -d "$programs" ]; then
	mkdir -p "$cache"
	rm -rf "$cache"/charts-*
	part=$(mktemp -d "$cache/part.XXXXXX")
	trap 'rm -rf "$part"' EXIT # of a build that failed
	echo "charts.sh: building helm" >&2
	(cd test/charts && CGO_ENABLED=0 nice go build -trimpath -ldflags='-s -w' -o "$part/" tool) >&2
	mv "$part" "$programs"
fi
echo "$programs"
