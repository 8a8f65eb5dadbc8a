#!/bin/sh
# docker.sh gets what the tests of plain Docker need besides the images of places.sh, and prints it as NAME=VALUE:
# the image of Codex, whose login wants a port; an agent-node with npm, for the Dockerfile of README.md, whose
# registry exists only in the tests; and socat.
set -eu
cd "$(dirname "$0")/../.."

context=$(mktemp -d)
trap 'rm -r "$context"' EXIT
trap 'exit 130' HUP INT TERM

test/debian.sh install socat:socat

images/fetch.sh codex >/dev/null
docker build -q --network=none --build-arg BASE="$AGENT_INIT_IMAGE" -t agent-init-test/agent-codex images/codex >/dev/null

node=$(test/npm.sh node)
npm=$(test/npm.sh npm)
mkdir -p "$context/node" "$context/npm"
tar -xzf "$node" -C "$context/node" --strip-components=2 package/bin/node
tar -xzf "$npm" -C "$context/npm" --strip-components=1
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
