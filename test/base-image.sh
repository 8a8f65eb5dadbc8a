#!/bin/sh
# base-image.sh makes an image that the container tests build on, without a registry: a minimal Debian
# root filesystem from the archive that this machine's apt is configured for, imported as
# agent-init-test/debian:bookworm.
#
#   base-image.sh           Debian
#   base-image.sh python    with Python and pip, as agent-init-test/python:bookworm
#
# DOCKER_HOST says which engine (see engine.sh). The root filesystem is kept as a tarball in
# AGENT_INIT_TEST_CACHE; remove it to have it made anew. DEBIAN_MIRROR names another archive.
set -eu

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
# git, ca-certificates and libcap2-bin are what Dockerfile.base would install: builds under test have no network.
packages="ca-certificates git libcap2-bin"
variant=${1:-debian}
case $variant in
debian) ;;
python) packages="$packages python3 python3-pip python3-venv" ;;
*)
	echo "usage: base-image.sh [python]" >&2
	exit 64
	;;
esac
here=${0%/*}
image=agent-init-test/$variant:bookworm
machine=$(uname -m)
key=$(cat "$0" "$here/debian.sh" | sha256sum | cut -c1-12)
tarball=$cache/$variant-bookworm-$key-$machine.tar

# One at a time: whoever comes second finds it made.
mkdir -p "$cache"
exec 8>"$cache/$variant-bookworm.lock"
flock 8

if [ ! -s "$tarball" ]; then
	root=$(mktemp -d "$cache/rootfs.XXXXXX")
	chmod 0755 "$root" # it becomes the mode of /, and some storage drivers keep that
	# debootstrap has file systems mounted in there for a while.
	trap 'rm -rf --one-file-system "$root" "$tarball.part"' EXIT
	trap 'exit 130' HUP INT TERM
	# shellcheck disable=SC2086 # a list
	"$here/debian.sh" root "$root" $packages >"$cache/debootstrap.log" 2>&1 || {
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
