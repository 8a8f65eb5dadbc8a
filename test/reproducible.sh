#!/bin/sh
# reproducible.sh builds the release twice, from two directories and with two empty caches, and fails if the files differ in a
# single bit. A release is its tag, `make release VERSION=TAG`, and the version of Go that `go version FILE` tells of its files.
#
# "reproducible.sh VERSION" builds as that version; it is "test" otherwise.
set -eu
cd "$(dirname "$0")/.."

version=${1:-test}
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM

# The second directory's name has another length, and its files another time.
for copy in a another; do
	mkdir "$work/$copy"
	git ls-files -z | xargs -0 cp --parents -t "$work/$copy"
	(
		cd "$work/$copy"
		[ "$copy" = a ] || find . -type f -exec touch -d '2001-02-03' {} +
		GOCACHE="$work/cache-$copy" GOFLAGS="${GOFLAGS:-}" make --no-print-directory release VERSION="$version" >/dev/null
	)
	rm -rf "$work/cache-$copy"
done

(cd "$work/a/bin/release" && sha256sum -- *) >"$work/a.sums"
(cd "$work/another/bin/release" && sha256sum -- *) >"$work/another.sums"
if ! diff "$work/a.sums" "$work/another.sums" >&2; then
	echo "reproducible.sh: the same sources made other files" >&2
	exit 1
fi
cat "$work/a.sums"
