#!/bin/sh
# pack.sh makes a directory to publish the devcontainer feature and templates from: pack.sh DIR [VERSION].
#
# The feature takes its executables from bin, one for each architecture (make release builds them); one that is
# missing is said, and left out. Then:
#
#   devcontainer features  publish -n agent-init/features DIR/features/src
#   devcontainer templates publish -n agent-init/templates DIR/templates/src
set -eu
[ $# -eq 1 ] || [ $# -eq 2 ] || {
	echo "usage: pack.sh DIR [VERSION]" >&2
	exit 64
}
cd "$(dirname "$0")"
mkdir -p "$1"
cp -R features templates "$1"
if [ $# -eq 2 ]; then
	sed -i "s/\"version\": \"[^\"]*\"/\"version\": \"$2\"/" "$1"/features/src/*/devcontainer-feature.json "$1"/templates/src/*/devcontainer-template.json
fi
feature=$1/features/src/agent-init
mkdir "$feature/bin"
found=
for arch in amd64 arm64; do
	if [ -e "../../bin/agent-init-$arch" ]; then
		cp "../../bin/agent-init-$arch" "$feature/bin"
		found=yes
	else
		echo "pack.sh: there is no bin/agent-init-$arch: it is left out" >&2
	fi
done
[ -n "$found" ] || {
	echo "pack.sh: there is nothing to publish; run make release" >&2
	exit 1
}
