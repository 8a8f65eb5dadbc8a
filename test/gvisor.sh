#!/bin/sh
# gvisor.sh runs the tests of agent-init inside of gVisor: it makes a real runsc and a root
# filesystem, once, and keeps both. Arguments go to "go test": -run, -v, …
#
# runsc is built through the Go module proxy, outside of this module, which never depends on
# it. The binary under test is built from this tree, or is the one that AGENT_INIT_BIN names.
# AGENT_INIT_TEST_CACHE is where things are kept; remove gvisor-* in it to have them made anew.
set -eu
cd "$(dirname "$0")/.."

version=v0.0.0-20260905035102-160fafc42237 # the branch "go" of gvisor.dev/gvisor, which has the generated code
cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
mkdir -p "$cache"
tools=$(mktemp -d)
trap 'rm -rf --one-file-system "$tools" "$cache/gvisor-bin.part" "$cache/gvisor-root.part"' EXIT
trap 'exit 130' HUP INT TERM

runsc=$cache/gvisor-runsc-$version
if [ ! -x "$runsc" ]; then
	echo "gvisor.sh: building runsc $version, which takes a few minutes" >&2
	GOBIN=$cache/gvisor-bin.part GOFLAGS=-mod=mod CGO_ENABLED=0 nice -n 10 go install "gvisor.dev/gvisor/runsc@$version"
	mv "$cache/gvisor-bin.part/runsc" "$runsc"
fi

tarball=$(test/base-root.sh)
name=${tarball##*/}
root=$cache/gvisor-root-${name%.tar}
if [ ! -d "$root" ]; then
	echo "gvisor.sh: making a root filesystem" >&2
	mkdir "$cache/gvisor-root.part"
	tar -xpf "$tarball" -C "$cache/gvisor-root.part"
	test/debian.sh closure "$cache/gvisor-root.part/tmp/debs" "$cache/gvisor-root.part/var/lib/dpkg/status" iptables
	# shellcheck disable=SC2016 # for the shell that is started
	unshare --mount sh -euc 'mount --bind /dev "$1/dev" && chroot "$1" sh -c "dpkg -i /tmp/debs/*.deb"' sh \
		"$cache/gvisor-root.part" >"$cache/gvisor-root.log" 2>&1 || {
		tail -n 20 "$cache/gvisor-root.log" >&2
		exit 1
	}
	rm -rf "$cache/gvisor-root.part/tmp/debs"
	# What Dockerfile.base makes for the agent's user.
	mkdir -p "$cache/gvisor-root.part/home/agent" "$cache/gvisor-root.part/workspace"
	chown 1000:1000 "$cache/gvisor-root.part/home/agent" "$cache/gvisor-root.part/workspace"
	mv "$cache/gvisor-root.part" "$root"
fi

if [ -z "${AGENT_INIT_BIN:-}" ]; then
	AGENT_INIT_BIN=$tools/agent-init
	CGO_ENABLED=0 go build -trimpath -ldflags='-s -w -funcalign=16' -o "$AGENT_INIT_BIN" ./cmd/agent-init
fi
CGO_ENABLED=0 go build -o "$tools/poke" ./internal/lab/cmd/poke

export AGENT_INIT_BIN AGENT_INIT_MUST_RUN=1 AGENT_INIT_RUNSC="$runsc" AGENT_INIT_GVISOR_ROOT="$root" AGENT_INIT_POKE="$tools/poke"
go test -count=1 -timeout 60m "$@" ./test/gvisor
