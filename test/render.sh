#!/bin/sh
# render.sh prints the directory of kustomize, which is the tool of the module test/render. It is built once for each version.
set -eu
cd "$(dirname "$0")/.."

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
sum=$(cat test/render/* test/render.sh | sha256sum | cut -c1-16)
programs=$cache/render-$sum
if [ ! -d "$programs" ]; then
	mkdir -p "$cache"
	rm -rf "$cache"/render-*
	part=$(mktemp -d "$cache/part.XXXXXX")
	trap 'rm -rf "$part"' EXIT # of a build that failed
	echo "render.sh: building kustomize" >&2
	(cd test/render && CGO_ENABLED=0 nice go build -trimpath -ldflags='-s -w' -o "$part/" tool) >&2
	mv "$part" "$programs"
fi
echo "$programs"
