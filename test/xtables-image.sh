#!/bin/sh
# xtables-image.sh builds an image that has iptables besides what another has, without a network at build
# time: for the container tests of the xtables backend. It prints the new image's name.
#
#   test/xtables-image.sh IMAGE NEW-IMAGE
#
# The packages are Debian's own, and kept in AGENT_INIT_TEST_CACHE. In an image of your own it is
# "RUN apt-get update && apt-get install -y --no-install-recommends iptables".
set -eu

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
machine=$(uname -m)
packages=$cache/xtables-debs-$machine

# One at a time: whoever comes second finds them there.
mkdir -p "$cache"
exec 8>"$packages.lock"
flock 8
if [ ! -e "$packages/complete" ]; then
	rm -rf "$packages"
	mkdir -p "$packages"
	# The machine is Debian 12, as is the image: its packages fit.
	"${0%/*}/debian.sh" download "$packages" iptables libip4tc2 libip6tc2 libmnl0 libnetfilter-conntrack3 \
		libnfnetlink0 libnftnl11 libxtables12 netbase
	touch "$packages/complete"
fi

context=$(mktemp -d)
trap 'rm -r "$context"' EXIT
trap 'exit 130' HUP INT TERM
cp "$packages"/*.deb "$context"
cat >"$context/Dockerfile" <<'END'
ARG BASE
FROM ${BASE}
COPY *.deb /tmp/
RUN dpkg -i /tmp/*.deb && rm /tmp/*.deb
END
docker build -q --network=none --build-arg BASE="$1" -t "$2" "$context" >/dev/null
echo "$2"
