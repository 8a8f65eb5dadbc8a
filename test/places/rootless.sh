#!/bin/sh
# rootless.sh installs what the tests of rootless engines need, once, and prints the image with iptables.
# The tests run the engines as a user of their own, in a network namespace of their own.
set -eu
cd "$(dirname "$0")/../.."

test/places/podman.sh
test/debian.sh install newuidmap:uidmap slirp4netns:slirp4netns rootlesskit:rootlesskit
# The script of Docker's that starts a rootless engine comes with docker.io, which test/engine.sh installs.
PATH=$PATH:/usr/share/docker.io/contrib command -v dockerd-rootless.sh >/dev/null || {
	echo "rootless.sh: there is no dockerd-rootless.sh: install Docker's package docker-ce-rootless-extras" >&2
	exit 1
}
image=$(test/xtables-image.sh agent-init-test/agent-base agent-init-test/agent-base-xtables)
echo "AGENT_INIT_XTABLES_IMAGE=$image"
