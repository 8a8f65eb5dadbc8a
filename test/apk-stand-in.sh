#!/bin/sh
# apk-stand-in.sh is apk in the root of alpine-root.sh. It knows as much as Dockerfile.base asks for:
#
#   apk info -e PACKAGE…          prints those that are installed; fails unless all are
#   apk add --no-cache PACKAGE…   installs them from /stand-in
set -eu

case "$*" in
"info -e "*)
	shift 2
	rc=0
	for package; do
		if [ -e "/lib/apk/stand-in/$package" ]; then echo "$package"; else rc=1; fi
	done
	exit $rc
	;;
"add --no-cache "*)
	shift 2
	for package; do
		[ -d "/stand-in/$package" ] || {
			echo "ERROR: unable to select packages: $package (no such package)" >&2
			exit 1
		}
	done
	mkdir -p /lib/apk/stand-in
	for package; do
		cp -a "/stand-in/$package/." /
		touch "/lib/apk/stand-in/$package"
	done
	;;
*)
	echo "apk: this stand-in knows nothing of: $*" >&2
	exit 99
	;;
esac
