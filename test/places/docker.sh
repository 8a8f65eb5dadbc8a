#!/bin/sh
# docker.sh gets what the tests of plain Docker need besides the images of places.sh, and prints it as NAME=VALUE:
# the image of Codex, whose login wants a port; an agent-node with npm, for the Dockerfile of README.md, whose
# registry exists only in the tests; and socat.
set -eu
cd "$(dirname "$0")/../.."

node=22.23.3
npm=10.9.4
packages=$AGENT_INIT_TEST_CACHE/agents
context=$(mktemp -d)
trap 'rm -r "$context"' EXIT
trap 'exit 130' HUP INT TERM

if ! command -v socat >/dev/null; then
	apt-get update -qq >&2
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends socat >&2
fi

images/fetch.sh codex >/dev/null
docker build -q --network=none --build-arg BASE="$AGENT_INIT_IMAGE" -t agent-init-test/agent-codex images/codex >/dev/null

# package gets one of npm's packages.
package() {
	[ -e "$packages/$1" ] && return
	mkdir -p "$packages"
	packed=$(npm pack --silent --pack-destination "$context" "$2")
	mv "$context/$packed" "$packages/$1"
}
package "node-$node.tgz" "node-linux-$(uname -m | sed 's/x86_64/x64/; s/aarch64/arm64/')@$node"
package "npm-$npm.tgz" "npm@$npm"
mkdir -p "$context/node" "$context/npm"
tar -xzf "$packages/node-$node.tgz" -C "$context/node" --strip-components=2 package/bin/node
tar -xzf "$packages/npm-$npm.tgz" -C "$context/npm" --strip-components=1
echo 'registry=http://npm.corp.example/' >"$context/npmrc"
cat >"$context/Dockerfile" <<'END'
ARG BASE
FROM ${BASE}
COPY node/node /usr/local/bin/node
COPY npm /usr/local/lib/node_modules/npm
COPY npmrc /usr/local/etc/npmrc
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm && agent-init detect npm >/etc/agent-init/allowlist.d/detected.txt
END
docker build -q --network=none --build-arg BASE="$AGENT_INIT_IMAGE" -t agent-init-test/agent-npm "$context" >/dev/null

echo AGENT_INIT_CODEX_IMAGE=agent-init-test/agent-codex
echo AGENT_INIT_NPM_IMAGE=agent-init-test/agent-npm
