#!/bin/sh
# fetch.sh gets the packages that an agent's Dockerfile builds from into images/AGENT/dist.
#
#   images/fetch.sh AGENT…                   for this machine's platform, Debian
#   images/fetch.sh AGENT --platform P       for another: x64, arm64, x64-musl, arm64-musl
#   images/fetch.sh AGENT --lock VERSION     pin another version: write its checksums, and the Dockerfile's ARG
#
# images/AGENT/packages says where they come from: with npm, from whatever registry npm is configured
# for; by URL; or with pip. What arrives is checked against images/AGENT/SHA*SUMS, or, where a
# package-lock.json is there instead, by npm. dist is looked up first, so a prepared directory needs no
# network. AGENT_INIT_TEST_CACHE, if it is set, keeps the packages between checkouts.
set -eu
cd "$(dirname "$0")"

fail() {
	echo "fetch.sh: $*" >&2
	exit 1
}

need() {
	command -v "$1" >/dev/null || fail "$1 is needed to get $agent; install it, or put $file into images/$agent/dist"
}

# line sets kind and spec to what images/AGENT/packages says of a platform.
line() {
	found=$(awk -v p="$1" '$1 == p {print $2, $3}' "$agent/packages")
	platforms=$(awk '{printf "%s ", $1}' "$agent/packages")
	[ -n "$found" ] || fail "there is no $agent for $1; there is: $platforms"
	kind=${found%% *}
	spec=$(echo "${found#* }" | sed "s/VERSION/$2/g")
}

version_of() {
	sed -n 's/^ARG VERSION=//p' "$agent/Dockerfile"
}

# watched runs what gets a package, which may take minutes and says nothing: on a terminal the seconds are counted.
watched() {
	echo "fetch.sh: getting $spec" >&2
	ticker=
	if [ -t 2 ]; then
		(
			seconds=0
			while sleep 1 && kill -0 $$ 2>/dev/null; do
				seconds=$((seconds + 1))
				printf '\r%d s ' "$seconds" >&2
			done
		) >/dev/null &
		ticker=$!
	fi
	rc=0
	"$@" || rc=$?
	if [ -n "$ticker" ]; then
		kill "$ticker"
		echo >&2
	fi
	return "$rc"
}

# get puts one package into the file $file of the directory $1. It ends the script itself where something fails: lock asks
# whether it did, and set -e is off in a function that is asked.
# shellcheck disable=SC2310 # watched returns what its command did
get() {
	case $kind in
	npm)
		need npm
		packed=$(watched npm pack --silent --pack-destination "$1" "$spec") || fail "npm can't get $spec"
		mv "$1/$packed" "$1/$file"
		;;
	npm-install)
		need npm
		tree=$(mktemp -d)
		cp "$agent/package.json" "$agent/package-lock.json" "$tree"
		# Scripts of packages don't run, here or anywhere: none of them is needed.
		(cd "$tree" && watched npm install --silent --no-save --ignore-scripts --omit=optional --no-audit --no-fund) || fail "npm can't get $spec"
		cmp -s "$agent/package-lock.json" "$tree/package-lock.json" || fail "npm got something else than $agent/package-lock.json says"
		tar -C "$tree" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -czf "$1/$file" node_modules
		rm -r "$tree"
		;;
	url)
		need curl
		watched curl -fsSL --retry 3 -o "$1/$file" "$spec" || fail "$spec can't be had"
		;;
	pip)
		need pip
		tree=$(mktemp -d) || fail "mktemp failed"
		watched pip download --quiet --only-binary :all: -d "$tree" "$spec" || fail "pip can't get $spec"
		tar -C "$tree" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -czf "$1/$file" . || fail "tar failed"
		rm -r "$tree"
		;;
	*) fail "images/$agent/packages: unknown kind $kind" ;;
	esac
}

# checked says whether a file of a directory is the one that is pinned.
checked() {
	sums=$(ls "$agent"/SHA*SUMS 2>/dev/null) || return 0 # pinned by npm's lock instead
	tool=$(basename "$sums" | tr '[:upper:]' '[:lower:]')
	pinned=$(grep -F -- "  $file" "$sums") || return 1
	(cd "$1" && echo "$pinned" | "${tool%s}" -c --quiet -)
}

fetch() {
	version=$(version_of)
	platform=$1
	if awk '$1 == "any" {found = 1} END {exit !found}' "$agent/packages"; then platform=any; fi
	line "$platform" "$version"
	file=$agent-$platform-$version.tgz
	keep=${AGENT_INIT_TEST_CACHE:+$AGENT_INIT_TEST_CACHE/agents}
	mkdir -p "$agent/dist"
	# One at a time: whoever comes second finds it there.
	exec 9<"$agent/Dockerfile"
	! command -v flock >/dev/null || flock 9
	if [ ! -e "$agent/dist/$file" ] && [ -n "$keep" ] && [ -e "$keep/$file" ]; then
		ln "$keep/$file" "$agent/dist/$file" 2>/dev/null || cp "$keep/$file" "$agent/dist/$file"
	fi
	[ -e "$agent/dist/$file" ] || get "$agent/dist"
	# shellcheck disable=SC2310 # a question
	if ! checked "$agent/dist"; then
		rm -f "$agent/dist/$file"
		fail "$agent/dist/$file was not what is pinned, and is removed"
	fi
	if [ -n "$keep" ] && [ ! -e "$keep/$file" ]; then
		mkdir -p "$keep"
		ln "$agent/dist/$file" "$keep/$file" 2>/dev/null || cp "$agent/dist/$file" "$keep/$file"
	fi
	echo "images/$agent/dist/$file"
}

# lock pins a version: it gets the package of every platform, and notes its checksum. A platform for
# which there is none is said, and left out.
lock() {
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' HUP INT TERM
	tool=sha512sum sums=SHA512SUMS
	if [ -e "$agent/SHA256SUMS" ]; then tool=sha256sum sums=SHA256SUMS; fi
	while read -r platform kind _; do
		line "$platform" "$1"
		file=$agent-$platform-$1.tgz
		if [ "$kind" = npm-install ]; then
			cp "$agent/package.json" "$work"
			sed -i "s|\(\"${spec%@*}\": \"\)[^\"]*|\1$1|" "$work/package.json"
			(cd "$work" && npm install --silent --package-lock-only --ignore-scripts --no-audit --no-fund --omit-lockfile-registry-resolved)
			cp "$work/package.json" "$work/package-lock.json" "$agent"
			continue
		fi
		got=yes
		# shellcheck disable=SC2310
		(get "$work") 2>/dev/null || got=
		if [ -n "$got" ]; then
			(cd "$work" && "$tool" "$file")
			rm "$work/$file"
		else
			echo "fetch.sh: no $spec: $platform is left out" >&2
		fi
	done <"$agent/packages" >"$work/sums"
	if [ -s "$work/sums" ]; then
		cp "$work/sums" "$agent/$sums"
	elif [ ! -e "$agent/package-lock.json" ]; then
		fail "version $1 can't be had for any platform"
	fi
	sed -i "s/^ARG VERSION=.*/ARG VERSION=$1/" "$agent/Dockerfile"
}

case $(uname -m) in
x86_64) machine=x64 ;;
aarch64) machine=arm64 ;;
*) machine=$(uname -m) ;;
esac
[ $# -gt 0 ] || fail "usage: fetch.sh AGENT… | AGENT --platform PLATFORM | AGENT --lock VERSION"
case ${2:-} in
--lock)
	[ $# -eq 3 ] || fail "usage: fetch.sh AGENT --lock VERSION"
	agent=$1
	lock "$3"
	;;
--platform)
	[ $# -eq 3 ] || fail "usage: fetch.sh AGENT --platform PLATFORM"
	agent=$1
	fetch "$3"
	;;
*)
	for agent; do
		[ -e "$agent/packages" ] || fail "there is no agent $agent; there is: $(for p in */packages; do printf '%s ' "${p%/*}"; done)"
		fetch "$machine"
	done
	;;
esac
