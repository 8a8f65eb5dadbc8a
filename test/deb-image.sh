#!/bin/sh
# deb-image.sh builds an image that has further Debian packages on top of the one of base-image.sh, without a network at build
# time, and prints its name:
#
#   test/deb-image.sh NEW-IMAGE PACKAGE…
#
# What the packages depend on is worked out by this machine's apt from the list of what that root filesystem has. They are kept in
# AGENT_INIT_TEST_CACHE.
set -eu
cd "$(dirname "$0")/.."

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
new=$1
shift
base=$(test/base-image.sh)
status=$(mktemp)
context=$(mktemp -d)
trap 'rm -r "$context" "$status"' EXIT
trap 'exit 130' HUP INT TERM
docker run --rm --network=none "$base" cat /var/lib/dpkg/status >"$status"
key=$({ echo "$*" && cat "$status"; } | sha256sum | cut -c1-12)
debs=$cache/debs-$key

# One at a time: whoever comes second finds them there.
mkdir -p "$cache"
exec 8>"$debs.lock"
flock 8
if [ ! -e "$debs/complete" ]; then
	rm -rf "$debs"
	test/debian.sh closure "$debs" "$status" "$@" >"$cache/deb-image.log" 2>&1 || {
		tail -n 20 "$cache/deb-image.log" >&2
		exit 1
	}
	touch "$debs/complete"
fi

cp "$debs"/*.deb "$context"
printf 'FROM %s\nCOPY *.deb /tmp/debs/\nRUN apt-get install -qq -y --no-install-recommends /tmp/debs/*.deb && rm -r /tmp/debs\n' "$base" >"$context/Dockerfile"
docker build -q --network=none -t "$new" "$context" >"$context/log" 2>&1 || {
	tail -n 20 "$context/log" >&2
	exit 1
}
echo "$new"
