#!/bin/sh
# devcontainer.sh gets what the tests of devcontainers need: the real command line client, a Node.js for it, an
# existing image of the kind that people have, and the feature and templates as they are published.
set -eu
cd "$(dirname "$0")/../.."

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
version=0.89.0
sum=2f36a8386290fd9aa5e8fb226788552185596a0cd6903eb9686ff5a2ee7f2a5cb96353ed8cb835ca7eeabbe2d90b3568025e83659fe96f3f2a38ee112cd96a32
node=22.23.3
home=$cache/devcontainer-$version-node-$node

command -v npm >/dev/null || {
	apt-get update -qq >&2
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends npm >&2
}
if [ ! -e "$home/complete" ]; then
	rm -rf "$home"
	mkdir -p "$home" "$cache/agents"
	packed=$(npm pack --silent --pack-destination "$home" "@devcontainers/cli@$version")
	echo "$sum  $home/$packed" | sha512sum --quiet -c - >&2
	tar -xzf "$home/$packed" -C "$home"
	rm "$home/$packed"
	# What Debian has is older than what the client wants.
	tarball=$cache/agents/node-$node.tgz
	if [ ! -e "$tarball" ]; then
		packed=$(npm pack --silent --pack-destination "$home" "node-linux-$(uname -m | sed 's/x86_64/x64/; s/aarch64/arm64/')@$node")
		mv "$home/$packed" "$tarball"
	fi
	tar -xzf "$tarball" -C "$home" --strip-components=2 package/bin/node
	touch "$home/complete"
fi

# The existing image: Debian with a user who may do everything as root, as most devcontainer images have it.
packages=$cache/devcontainer-debs-$(uname -m)
if [ ! -e "$packages/complete" ]; then
	rm -rf "$packages"
	mkdir -p "$packages"
	apt-get update -qq >&2
	(cd "$packages" && apt-get download -qq sudo wget libpsl5 >&2)
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
docker build -q --network=none --build-arg BASE="$(test/base-image.sh)" -t "$image" "$context" >/dev/null

echo "AGENT_INIT_EXISTING_IMAGE=$image"
echo "AGENT_INIT_DEVCONTAINER=$home"
