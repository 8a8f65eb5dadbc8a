#!/bin/sh
# devcontainer.sh gets what the tests of devcontainers need: the real command line client, a Node.js for it, an
# existing image of the kind that people have, and the feature and templates as they are published.
set -eu
cd "$(dirname "$0")/../.."

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
client=$(test/npm.sh devcontainer)
node=$(test/npm.sh node)
machine=$(uname -m)
home=$cache/$(basename "$client" .tgz)-$(basename "$node" .tgz)

if [ ! -e "$home/complete" ]; then
	rm -rf "$home"
	mkdir -p "$home"
	tar -xzf "$client" -C "$home"
	# What Debian has is older than what the client wants.
	tar -xzf "$node" -C "$home" --strip-components=2 package/bin/node
	touch "$home/complete"
fi

# The existing image: Debian with a user who may do everything as root, as most devcontainer images have it.
packages=$cache/devcontainer-debs-$machine
if [ ! -e "$packages/complete" ]; then
	rm -rf "$packages"
	mkdir -p "$packages"
	test/debian.sh download "$packages" sudo wget libpsl5
	touch "$packages/complete"
fi
image=agent-init-test/existing
context=$(mktemp -d)
trap 'rm -r "$context"' EXIT
trap 'exit 130' HUP INT TERM
cp "$packages"/*.deb "$context"
cat >"$context/Dockerfile" <<'END'
ARG BASE
FROM ${BASE}
COPY *.deb /tmp/
RUN dpkg -i /tmp/*.deb && rm /tmp/*.deb \
 && useradd --uid 1000 --create-home --shell /bin/bash --groups sudo vscode \
 && echo 'vscode ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/vscode
END
debian=$(test/base-image.sh)
docker build -q --network=none --build-arg BASE="$debian" -t "$image" "$context" >/dev/null

echo "AGENT_INIT_EXISTING_IMAGE=$image"
echo "AGENT_INIT_DEVCONTAINER=$home"
