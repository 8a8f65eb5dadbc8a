#!/bin/sh
# fetch.sh gets the Claude Code packages that the Dockerfile beside it builds from, with npm, into
# dist/. No Node.js ends up in the image: the package of each platform holds one executable.
#
#   images/claude/fetch.sh                   this machine's platform, Debian
#   images/claude/fetch.sh arm64 x64-musl    the platforms named: x64, arm64, and -musl for Alpine
#   images/claude/fetch.sh --lock VERSION    write SHA512SUMS for another version
#
# SHA512SUMS pins the version and the contents; what npm delivers is checked against it. dist/ is
# looked up first, so a prepared directory needs no network. AGENT_INIT_TEST_CACHE, if it is set,
# keeps the packages between checkouts.
set -eu

cd "$(dirname "$0")"
platforms="x64 arm64 x64-musl arm64-musl"

fail() {
	echo "fetch.sh: $*" >&2
	exit 1
}

command -v npm >/dev/null || fail "npm is needed to get the package; install Node.js, or put the files that SHA512SUMS names into images/claude/dist"

lock() {
	for platform in $platforms; do
		integrity=$(npm view "@anthropic-ai/claude-code-linux-$platform@$1" dist.integrity)
		[ "${integrity#sha512-}" != "$integrity" ] || fail "no sha512 is published for version $1, platform $platform"
		sum=$(echo "${integrity#sha512-}" | base64 -d | od -An -vtx1 | tr -d ' \n')
		echo "$sum  anthropic-ai-claude-code-linux-$platform-$1.tgz"
	done >SHA512SUMS.part
	mv SHA512SUMS.part SHA512SUMS
}

# fetch puts one platform's package into dist, from dist, the cache or npm.
fetch() {
	file=$(sed -n "s/^[0-9a-f]*  \(anthropic-ai-claude-code-linux-$1-[0-9].*\)$/\1/p" SHA512SUMS)
	[ -n "$file" ] || fail "SHA512SUMS has no platform $1; it has: $platforms"
	version=${file#"anthropic-ai-claude-code-linux-$1-"}
	version=${version%.tgz}
	keep=${AGENT_INIT_TEST_CACHE:+$AGENT_INIT_TEST_CACHE/claude}
	mkdir -p dist
	if [ ! -e "dist/$file" ] && [ -n "$keep" ] && [ -e "$keep/$file" ]; then
		ln "$keep/$file" "dist/$file" 2>/dev/null || cp "$keep/$file" "dist/$file"
	fi
	if [ ! -e "dist/$file" ]; then
		npm pack --silent --pack-destination dist "@anthropic-ai/claude-code-linux-$1@$version" >/dev/null
	fi
	if ! (cd dist && grep -F -- "  $file" ../SHA512SUMS | sha512sum -c --quiet -); then
		rm -f "dist/$file"
		fail "dist/$file was not what SHA512SUMS says, and is removed"
	fi
	if [ -n "$keep" ] && [ ! -e "$keep/$file" ]; then
		mkdir -p "$keep"
		ln "dist/$file" "$keep/$file" 2>/dev/null || cp "dist/$file" "$keep/$file"
	fi
	echo "images/claude/dist/$file"
}

case ${1:-} in
--lock)
	[ $# -eq 2 ] || fail "usage: fetch.sh --lock VERSION"
	lock "$2"
	;;
-*) fail "usage: fetch.sh [PLATFORM…] | --lock VERSION" ;;
"")
	case $(uname -m) in
	x86_64) fetch x64 ;;
	aarch64) fetch arm64 ;;
	*) fail "there is no Claude Code for $(uname -m)" ;;
	esac
	;;
*) for platform; do fetch "$platform"; done ;;
esac
