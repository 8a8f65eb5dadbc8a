#!/bin/sh
# base-root.sh makes the root filesystem that the container tests and gVisor's build on, a minimal Debian from the archive
# that this machine's apt is configured for, and prints where it is: a tarball in AGENT_INIT_TEST_CACHE.
set -eu
cd "$(dirname "$0")"

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
machine=$(uname -m)
# shellcheck disable=SC2016 # a stage of Dockerfile.base, and no variable here
tools=$(sed -n '/^FROM ${DEBIAN} AS debian$/,/^RUN/s/^ARG TOOLS="\(.*\)"/\1/p' ../Dockerfile.base)
key=$({ echo "$tools" && cat base-root.sh debian.sh; } | sha256sum | cut -c1-12)
tarball=$cache/debian-bookworm-$key-$machine.tar

# One at a time: whoever comes second finds it made.
mkdir -p "$cache"
exec 8>"$cache/debian-bookworm.lock"
flock 8
if [ ! -s "$tarball" ]; then
	root=$(mktemp -d "$cache/rootfs.XXXXXX")
	chmod 0755 "$root" # it becomes the mode of /, and some storage drivers keep that
	# debootstrap has file systems mounted in there for a while.
	trap 'rm -rf --one-file-system "$root" "$tarball.part"' EXIT
	trap 'exit 130' HUP INT TERM
	# What Dockerfile.base would install: builds under test have no network.
	# shellcheck disable=SC2086 # a list
	./debian.sh root "$root" ca-certificates git libcap2-bin $tools >"$cache/debootstrap.log" 2>&1 || {
		tail -n 20 "$cache/debootstrap.log" >&2
		exit 1
	}
	rm -rf "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* \
		"$root"/var/log/* "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/* \
		"$root"/etc/resolv.conf "$root"/etc/hostname "${root:?}"/dev/*
	rm -f "$cache"/debian-bookworm-*.tar
	tar -C "$root" --numeric-owner --xattrs --xattrs-include='*' -cf "$tarball.part" .
	mv "$tarball.part" "$tarball"
fi
echo "$tarball"
