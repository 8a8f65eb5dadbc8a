#!/bin/sh
# compose.sh gets what the tests of Compose need besides the images of places.sh, and prints it as NAME=VALUE: Docker
# Compose itself, built from its sources; an agent-crush from a stand-in for Crush, which can't be had here; the
# real tinyproxy; and an image that waits, in whose network a test can serve.
set -eu
cd "$(dirname "$0")/../.."

compose=v2.40.3
plugin=$AGENT_INIT_TEST_CACHE/compose-$compose/cli-plugins/docker-compose
context=$(mktemp -d)
trap 'chmod -R u+w "$context"; rm -r "$context"' EXIT
trap 'exit 130' HUP INT TERM

if [ ! -x "$plugin" ]; then
	# The module excludes versions of others, so "go install module@version" does not take it.
	(cd "$context" && go mod download -json "github.com/docker/compose/v2@$compose") >"$context/module.json" || {
		cat "$context/module.json" >&2
		exit 1
	}
	source=$(sed -n 's/^.*"Dir": "\(.*\)".*/\1/p' "$context/module.json")
	cp -r "$source" "$context/compose"
	chmod -R u+w "$context/compose"
	(cd "$context/compose" && CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -trimpath -buildvcs=false \
		-ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$compose" -o "$context/docker-compose" ./cmd) >&2
	mkdir -p "${plugin%/*}"
	mv "$context/docker-compose" "$plugin"
fi

build() {
	docker build -q --network=none "$@" >/dev/null
}

cp -r images/crush "$context/crush"
rm -rf "$context/crush/dist"
version=$(sed -n 's/^ARG VERSION=//p' images/crush/Dockerfile)
machine=$(uname -m)
case $machine in aarch64) platform=arm64 ;; *) platform=x64 ;; esac
mkdir -p "$context/crush/dist" "$context/package/crush_Linux"
install -m 0755 test/container/testdata/crush.sh "$context/package/crush_Linux/crush"
tar -czf "$context/crush/dist/crush-$platform-$version.tgz" -C "$context/package" crush_Linux
(cd "$context/crush/dist" && sha256sum ./*.tgz | sed 's|\./||') >"$context/crush/SHA256SUMS"
build --build-arg BASE="$AGENT_INIT_IMAGE" -t agent-init-test/agent-crush-compose "$context/crush"

packages=$AGENT_INIT_TEST_CACHE/tinyproxy-debs-$machine
if [ ! -e "$packages/complete" ]; then
	rm -rf "$packages"
	mkdir -p "$packages"
	test/debian.sh download "$packages" tinyproxy-bin
	touch "$packages/complete"
fi
mkdir "$context/tinyproxy"
cp "$packages"/*.deb "$context/tinyproxy"
debian=$(test/base-image.sh)
printf 'FROM %s\nCOPY *.deb /tmp/\nRUN dpkg -i /tmp/*.deb && rm /tmp/*.deb\n' "$debian" >"$context/tinyproxy/Dockerfile"
build -t agent-init-test/tinyproxy "$context/tinyproxy"

mkdir "$context/idle"
printf 'FROM %s\nCMD ["sleep", "infinity"]\n' "$debian" >"$context/idle/Dockerfile"
build -t agent-init-test/idle "$context/idle"

echo "AGENT_INIT_COMPOSE_CONFIG=${plugin%/cli-plugins/*}"
echo AGENT_INIT_CRUSH_IMAGE=agent-init-test/agent-crush-compose
echo AGENT_INIT_TINYPROXY_IMAGE=agent-init-test/tinyproxy
echo AGENT_INIT_IDLE_IMAGE=agent-init-test/idle
