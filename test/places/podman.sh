#!/bin/sh
# podman.sh installs what the tests of Podman need, once. They run it in a network namespace of their own.
set -eu
exec "$(dirname "$0")/../debian.sh" install podman:podman catatonit:catatonit netavark:netavark aardvark-dns:aardvark-dns \
	runc:runc nsenter:util-linux ip:iproute2
