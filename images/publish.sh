#!/bin/sh
# publish.sh builds every image for every platform that it can be built for, and pushes them:
#
#   make release && images/publish.sh REGISTRY VERSION
#
# agent-base for Debian and Alpine, the variants for languages, and the agents, each with an SBOM and with the record of how it was
# built. bin/images.sha256 has the digest of each. PUBLISH="agent-base agent-claude" publishes only those, agents on what is
# in the registry already.
# wanted is a question, and made to be: set -e is off in what is asked.
# shellcheck disable=SC2310
set -eu
cd "$(dirname "$0")/.."

fail() {
	echo "publish.sh: $*" >&2
	exit 1
}

if [ $# -ne 2 ] || [ -z "$1" ] || [ -z "$2" ]; then fail "usage: publish.sh REGISTRY VERSION"; fi
registry=$1 version=$2
for arch in amd64 arm64; do
	[ -x "bin/agent-init-$arch" ] || fail "bin/agent-init-$arch is missing: run make release"
done
metadata=$(mktemp)
trap 'rm "$metadata"' EXIT
trap 'exit 130' HUP INT TERM
: >bin/images.sha256

wanted() {
	case " ${PUBLISH:-$1} " in *" $1 "*) ;; *) return 1 ;; esac
}

# build NAME SUFFIX PLATFORMS ARG…: the tag is the version and "latest", each with the suffix.
build() {
	name=$registry/$1 tag=$version$2 latest=latest$2 platforms=$3
	shift 3
	docker buildx build --push --platform "$platforms" --sbom=true --provenance=mode=max --metadata-file "$metadata" \
		-t "$name:$tag" -t "$name:$latest" "$@"
	digest=$(sed -n 's/.*"containerimage.digest": *"sha256:\([0-9a-f]*\)".*/\1/p' "$metadata")
	[ "${#digest}" -eq 64 ] || fail "docker buildx did not say the digest of $name:$tag"
	echo "$digest  $name:$tag" >>bin/images.sha256
}

base() {
	build "$@" --build-arg PER_ARCH=yes --build-arg VERSION="$version" -f Dockerfile.base .
}

# fetched gets what an agent's image is built from for the platforms that it is pinned for, and says which those are.
fetched() {
	any=$(awk '$1 == "any"' "images/$1/packages")
	if [ -n "$any" ]; then
		images/fetch.sh "$1" >&2
		echo linux/amd64,linux/arm64
		return
	fi
	# What pip gets is for the machine that it runs on.
	other=$(awk '$2 != "pip"' "images/$1/packages")
	if [ -z "$other" ]; then
		images/fetch.sh "$1" >&2
		docker version --format '{{.Client.Os}}/{{.Client.Arch}}'
		return
	fi
	platforms=
	for platform in x64 arm64; do
		grep -q -- "  $1-$platform-" images/"$1"/SHA*SUMS || continue
		images/fetch.sh "$1" --platform "$platform" >&2
		platforms=$platforms,linux/$(echo "$platform" | sed 's/x64/amd64/')
	done
	echo "${platforms#,}"
}

both=linux/amd64,linux/arm64
if wanted agent-base; then
	base agent-base "" $both --target debian
	base agent-base -alpine $both --target alpine
	base agent-base -slim $both --target debian --build-arg TOOLS=
fi
while read -r variant from manager; do
	case $variant in \#*) continue ;; esac
	! wanted "agent-$variant" || base "agent-$variant" "" $both --target debian --build-arg DEBIAN="$from" --build-arg DETECT="$manager" </dev/null
done <images/variants
for packages in images/*/packages; do
	agent=$(basename "$(dirname "$packages")")
	wanted "agent-$agent" || continue
	from=$(sed -n 's/^ARG BASE=//p' "images/$agent/Dockerfile")
	platforms=$(fetched "$agent")
	build "agent-$agent" "" "$platforms" --build-arg BASE="$registry/$from:$version" "images/$agent"
done
cat bin/images.sha256
