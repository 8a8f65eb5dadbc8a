#!/bin/sh
# base-image.sh makes the image that the container tests build on, without a registry: a minimal
# Debian root filesystem from Debian's own archive, imported as agent-init-test/debian:bookworm.
#
# DOCKER_HOST says which engine (see engine.sh). The root filesystem is kept as a tarball in
# AGENT_INIT_TEST_CACHE; remove it to have it made anew.
set -eu

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
image=agent-init-test/debian:bookworm
tarball=$cache/debian-bookworm-$(uname -m).tar

if ! command -v debootstrap >/dev/null; then
	apt-get update -qq >&2
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >&2
fi

if [ ! -s "$tarball" ]; then
	mkdir -p "$cache"
	root=$(mktemp -d "$cache/rootfs.XXXXXX")
	trap 'rm -rf "$root" "$tarball.part"' EXIT
	# git, ca-certificates and libcap2-bin are what Dockerfile.base would install: builds under test have no network.
	debootstrap --variant=minbase --include=ca-certificates,git,libcap2-bin bookworm "$root" \
		"${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$cache/debootstrap.log" 2>&1 || {
		tail -n 20 "$cache/debootstrap.log" >&2
		exit 1
	}
	rm -rf "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* \
		"$root"/var/log/* "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/* \
		"$root"/etc/resolv.conf "$root"/etc/hostname "${root:?}"/dev/*
	tar -C "$root" --numeric-owner --xattrs --xattrs-include='*' -cf "$tarball.part" .
	mv "$tarball.part" "$tarball"
	docker image rm -f "$image" >/dev/null 2>&1 || true
fi

if ! docker image inspect "$image" >/dev/null 2>&1; then
	docker import --change 'CMD ["bash"]' "$tarball" "$image" >/dev/null
fi
echo "$image"
