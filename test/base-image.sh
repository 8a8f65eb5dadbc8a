#!/bin/sh
# base-image.sh makes an image that the container tests build on, without a registry: the minimal Debian of base-root.sh,
# imported as agent-init-test/debian. It prints its name.
#
#   base-image.sh           Debian
#   base-image.sh python    with Python and pip, as agent-init-test/python
#
# DOCKER_HOST says which engine (see engine.sh).
set -eu
here=$(dirname "$0")

case ${1:-} in
"") ;;
python) exec "$here/deb-image.sh" agent-init-test/python python3 python3-pip python3-venv ;;
*)
	echo "usage: base-image.sh [python]" >&2
	exit 64
	;;
esac
tarball=$("$here/base-root.sh")
name=${tarball##*/}
image=agent-init-test/debian:${name%.tar}
exec 8>"$tarball.lock"
flock 8
if ! docker image inspect "$image" >/dev/null 2>&1; then
	docker import --change 'CMD ["bash"]' "$tarball" "$image" >/dev/null
fi
echo "$image"
