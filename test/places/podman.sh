#!/bin/sh
# podman.sh installs what the tests of Podman need, once. They run it in a network namespace of their own.
set -eu

missing=
for tool in podman:podman catatonit:catatonit netavark:netavark aardvark-dns:aardvark-dns runc:runc nsenter:util-linux ip:iproute2; do
	PATH=$PATH:/usr/lib/podman command -v "${tool%%:*}" >/dev/null || missing="$missing ${tool##*:}"
done
[ -n "$missing" ] || exit 0
echo "podman.sh: installing$missing" >&2
{
	apt-get update -qq
	# shellcheck disable=SC2086 # a list
	DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends $missing
} >&2
