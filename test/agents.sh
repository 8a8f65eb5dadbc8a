#!/bin/sh
# agents.sh builds the image of every agent and tests them all: what each contacts, that its allowlist
# is neither too short nor too long, and that it answers a prompt while confined. Arguments go to
# "go test": -run, -v, …
#
# AGENTS="claude codex" builds and tests only those. AGENT_INIT_UPDATE=1 writes the table of
# docs/agents/README.md anew. The agents come from npm; those that don't are built from a stand-in,
# which shows that the image is made as it should be, and nothing about the agent.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=test/with-engine.sh
. test/with-engine.sh

agents=${AGENTS:-$(for packages in images/*/packages; do basename "${packages%/packages}"; done)}

base_context "$context"
use_engine

build() {
	docker build -q --network=none "$@" >"$context/build.log" 2>&1 || {
		cat "$context/build.log" >&2
		exit 1
	}
}

base() {
	build -f Dockerfile.base --target debian "$@" "$context"
}

debian=$(test/base-image.sh)
base --build-arg DEBIAN="$debian" -t agent-init-test/agent-base

# with_node is Debian with the Node.js that npm has, and a registry that exists only here.
with_node() {
	mkdir -p "$context/node"
	tarball=$(test/npm.sh node)
	tar -xzf "$tarball" -C "$context/node" --strip-components=2 package/bin/node
	echo 'registry=https://npm.example.com/' >"$context/node/npmrc"
	printf 'FROM %s\nCOPY node /usr/local/bin/node\nCOPY npmrc /etc/npmrc\n' "$debian" >"$context/node/Dockerfile"
	build -t agent-init-test/node "$context/node"
	base --build-arg DEBIAN=agent-init-test/node --build-arg DETECT=npm -t agent-init-test/agent-node
}

with_python() {
	python=$(test/base-image.sh python)
	base --build-arg DEBIAN="$python" --build-arg DETECT=pip -t agent-init-test/agent-python
}

# stand_in makes a package that has the form of an agent's, and holds a program that says its version, or asks a model of what
# it reads from a terminal.
stand_in() {
	version=$(sed -n 's/^ARG VERSION=//p' "images/$1/Dockerfile")
	machine=$(uname -m)
	case $machine in aarch64) platform=arm64 ;; *) platform=x64 ;; esac
	work=$context/$1-package
	mkdir -p "$work" "$2/dist"
	case $1 in
	crush) program=crush_${version}_Linux/crush ;;
	cursor) program=dist-package/cursor-agent ;;
	aider)
		python3 test/wheel.py "$work" "$version"
		program=
		;;
	esac
	if [ -n "$program" ]; then
		mkdir -p "$work/${program%/*}"
		sed "s/NAME VERSION/$1 $version/" test/container/testdata/stand-in.sh >"$work/$program"
		chmod 0755 "$work/$program"
	fi
	file=$1-$platform-$version.tgz
	(cd "$work" && tar -czf "$2/dist/$file" -- *)
	(cd "$2/dist" && sha256sum "$file") >"$2/SHA256SUMS"
}

images=
real=
bases=
for agent in $agents; do
	base=$(sed -n 's/^ARG BASE=agent-//p' "images/$agent/Dockerfile")
	case " $bases base " in
	*" $base "*) ;;
	*)
		"with_$base"
		bases="$bases $base"
		;;
	esac
	dir=images/$agent
	case $agent in
	crush | cursor | aider)
		dir=$context/$agent
		cp -r "images/$agent" "$dir"
		rm -rf "$dir/dist"
		stand_in "$agent" "$dir"
		;;
	*)
		images/fetch.sh "$agent" >/dev/null
		real="$real $agent"
		;;
	esac
	build --build-arg BASE="agent-init-test/agent-$base" -t "agent-init-test/agent-$agent" "$dir"
	images="$images $agent"
done
docker image prune -f >/dev/null

export AGENT_INIT_MUST_RUN=1 AGENT_INIT_IMAGE=agent-init-test/agent-base AGENT_INIT_AGENTS="$images" AGENT_INIT_AGENTS_REAL="$real"
go test -count=1 -timeout 60m -run '^TestContainerAgents' "$@" ./test/container
