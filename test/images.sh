#!/bin/sh
# images.sh builds and tests the base images that container.sh doesn't: the Alpine target on a root of musl and BusyBox
# (alpine-root.sh), the variants for languages, each configured for a mirror of its own, and the binary of the other architecture
# under qemu. Arguments go to "go test": -run, -v, …
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=test/with-engine.sh
. test/with-engine.sh

# What Dockerfile.base is built from has a directory of its own: all of it is sent to the engine each time.
mkdir -p "$context/base/bin" "$context/base/images"
cp images/agent.sh images/shell.bash "$context/base/images"
for arch in amd64 arm64; do
	CGO_ENABLED=0 GOARCH=$arch go build -trimpath -buildvcs=false -ldflags='-s -w -funcalign=16' -o "$context/base/bin/agent-init-$arch" ./cmd/agent-init
done
processor=$(uname -m)
case $processor in
aarch64) machine=arm64 other=x86_64 ;;
*) machine=amd64 other=aarch64 ;;
esac
cp "${AGENT_INIT_BIN:-$context/base/bin/agent-init-$machine}" "$context/base/bin/agent-init"

use_engine

build() {
	docker build -q --network=none "$@" >"$context/build.log" 2>&1 || {
		cat "$context/build.log" >&2
		exit 1
	}
}

debian=$(test/base-image.sh)
alpine=$(test/alpine-root.sh)
base() {
	build -f Dockerfile.base "$@" "$context/base"
}

# variant NAME IMAGE MANAGER [OPTION…]: IMAGE with the files of $context/NAME, whose Dockerfile's lines are read from standard input.
variant() {
	name=$1 from=$2 manager=$3
	shift 3
	mkdir -p "$context/$name"
	{
		echo "FROM $from"
		cat
	} >"$context/$name/Dockerfile"
	build -t "agent-init-test/base-$name" "$context/$name"
	base --target debian --build-arg DEBIAN="agent-init-test/base-$name" --build-arg DETECT="$manager" -t "agent-init-test/variant-$name"
}

base --target debian --build-arg DEBIAN="$debian" -t agent-init-test/agent-base

# A Debian without the tools, as "make image-slim" has it.
mkdir -p "$context/slim"
# shellcheck disable=SC2016 # a stage of Dockerfile.base, and no variable here
tools=$(sed -n '/^FROM ${DEBIAN} AS debian$/,/^RUN/s/^ARG TOOLS="\(.*\)"/\1/p' Dockerfile.base)
printf 'FROM %s\nRUN dpkg --purge %s\n' "$debian" "$tools" >"$context/slim/Dockerfile"
build -t agent-init-test/base-slim "$context/slim"
base --target debian --build-arg DEBIAN=agent-init-test/base-slim --build-arg TOOLS= -t agent-init-test/agent-slim

base --target alpine --build-arg DEBIAN="$debian" --build-arg ALPINE="$alpine" -t agent-init-test/agent-alpine
images/fetch.sh codex >/dev/null
build --build-arg BASE=agent-init-test/agent-alpine -t agent-init-test/agent-codex-alpine images/codex

node=$(test/npm.sh node)
npm=$(test/npm.sh npm)
mkdir -p "$context/node/npm"
tar -xzf "$node" -C "$context/node" --strip-components=2 package/bin/node
tar -xzf "$npm" -C "$context/node/npm" --strip-components=1
echo 'registry=https://npm.corp.example/' >"$context/node/npmrc"
variant node "$debian" npm <<'END'
COPY node /usr/local/bin/node
COPY npm /usr/local/lib/node_modules/npm
COPY npmrc /usr/local/etc/npmrc
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
END

python=$(test/base-image.sh python)
variant python "$python" pip <<'END'
RUN printf '[global]\nindex-url = https://pypi.corp.example/simple\n' >/etc/pip.conf
END

rust=$(test/deb-image.sh agent-init-test/rust cargo-web)
mkdir -p "$context/rust"
cat >"$context/rust/config.toml" <<'END'
[source.crates-io]
replace-with = "corp"
[source.corp]
registry = "sparse+https://cargo.corp.example/index/"
END
# Like the official images of Rust and Go, these begin PATH with a directory that everybody may write.
variant rust "$rust" cargo <<'END'
COPY config.toml /.cargo/config.toml
RUN mkdir -p /usr/local/cargo/bin && chmod -R a+w /usr/local/cargo
ENV PATH=/usr/local/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
END

# Go as far as "go get" of a package without imports takes it.
mkdir -p "$context/go/go/bin"
root=$(go env GOROOT)
cp "$root/bin/go" "$context/go/go/bin/"
cp "$root/go.env" "$root/VERSION" "$context/go/go/"
cp -r "$root/pkg" "$context/go/go/pkg"
variant go "$debian" go <<'END'
COPY go /usr/local/go
RUN mkdir -p /go/bin && chmod -R 1777 /go
ENV PATH=/go/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    GOTOOLCHAIN=local GOPROXY=https://go.corp.example GOSUMDB=off
END

variant apt "$debian" apt <<'END'
RUN rm -rf /etc/apt/sources.list.d/* \
 && echo 'deb [trusted=yes] https://apt.corp.example/debian bookworm main' >/etc/apt/sources.list
END
docker image prune -f >/dev/null

# qemu's user mode, unpacked and not installed: installing it may register it with the kernel, for the whole machine.
qemu=$AGENT_INIT_TEST_CACHE/qemu-$other-static
if [ ! -x "$qemu" ]; then
	test/debian.sh download "$context" qemu-user-static
	dpkg-deb --fsys-tarfile "$context"/qemu-user-static_*.deb >"$context/qemu.tar"
	tar -xf "$context/qemu.tar" -C "$context" --strip-components=3 "./usr/bin/qemu-$other-static"
	mv "$context/qemu-$other-static" "$qemu"
fi

export AGENT_INIT_MUST_RUN=1 AGENT_INIT_IMAGE=agent-init-test/agent-base AGENT_INIT_BINARIES="$context/base/bin" AGENT_INIT_QEMU="$qemu"
go test -count=1 -timeout 60m -run '^TestContainerImages' "$@" ./test/container
