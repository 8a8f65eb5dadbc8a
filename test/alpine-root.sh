#!/bin/sh
# alpine-root.sh makes an image in the form of Alpine's, agent-init-test/alpine:stand-in, where Alpine's packages can't be had:
# a root filesystem of BusyBox and musl, and no byte of glibc. alpine-build.sh builds both, and libcap's getcap and setcap;
# "apk" is apk-stand-in.sh. DOCKER_HOST says which engine. The root is kept as a tarball in AGENT_INIT_TEST_CACHE.
set -eu
cd "$(dirname "$0")"

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
image=agent-init-test/alpine:stand-in
machine=$(uname -m)
# shellcheck disable=SC2016 # a stage of Dockerfile.base, and no variable here
tools=$(sed -n '/^FROM ${ALPINE} AS alpine$/,/^RUN/s/^ARG TOOLS="\(.*\)"/\1/p' ../Dockerfile.base)
key=$({ echo "$tools" && cat alpine-*.sh apk-stand-in.sh; } | sha256sum | cut -c1-12)
tarball=$cache/alpine-$key-$machine.tar

# One at a time: whoever comes second finds it made.
mkdir -p "$cache"
exec 8>"$cache/alpine.lock"
flock 8

# fill makes a root out of what was built.
fill() {
	cd "$work/root"
	mkdir -p dev etc/ssl/certs home lib proc root run sys tmp usr/local/bin var/log stand-in
	chmod 1777 tmp
	loader=$(echo /lib/ld-musl-*.so.1)
	cp -L "$loader" lib/
	ln -s "/lib/${loader##*/}" "lib/libc.musl-$machine.so.1"
	echo 3.22.0 >etc/alpine-release
	printf 'NAME="Alpine Linux, a stand-in"\nID=alpine\nVERSION_ID=3.22.0\n' >etc/os-release
	printf 'root:x:0:0:root:/root:/bin/sh\nguest:x:405:100:guest:/dev/null:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n' >etc/passwd
	printf 'root:x:0:root\nshadow:x:42:\nusers:x:100:\nnobody:x:65534:\n' >etc/group
	printf 'root:*::0:::::\nguest:!::0:::::\nnobody:!::0:::::\n' >etc/shadow
	chmod 0640 etc/shadow
	cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/
	# As Alpine's: a setuid part of BusyBox, and a getent.
	cp bin/busybox bin/bbsuid
	chmod 4111 bin/bbsuid
	cp "$here/apk-stand-in.sh" sbin/apk
	cat >usr/bin/getent <<'END'
#!/bin/sh
[ $# -eq 2 ] && awk -F: -v k="$2" '$1 == k || $3 == k {print; found = 1} END {exit found ? 0 : 2}' "/etc/$1"
END
	chmod 0755 sbin/apk usr/bin/getent
	# What apk adds is waiting in /stand-in, one directory for each package.
	# Of the tools there are names alone: whether Alpine has packages of these names is not seen here.
	for package in bash ca-certificates git libcap-utils $tools; do mkdir -p "stand-in/$package"; done
	mkdir -p stand-in/libcap-utils/usr/sbin stand-in/bash/bin stand-in/git/usr/bin
	cp "$work/getcap" "$work/setcap" stand-in/libcap-utils/usr/sbin/
	rm -f bin/bash usr/bin/bash
	ln -s busybox stand-in/bash/bin/bash
	printf '#!/bin/sh\necho "git: a stand-in"\n' >stand-in/git/usr/bin/git
	chmod 0755 stand-in/git/usr/bin/git
}

if [ ! -s "$tarball" ]; then
	here=$PWD
	work=$(mktemp -d)
	trap 'rm -rf "$work" "$tarball.part"' EXIT
	trap 'exit 130' HUP INT TERM
	# A program of its own: a function that is asked whether it failed goes on after an error (set -e is off in it).
	./alpine-build.sh "$work" >"$cache/alpine-root.log" 2>&1 || {
		tail -n 20 "$cache/alpine-root.log" >&2
		exit 1
	}
	(fill)
	rm -f "$cache"/alpine-*.tar
	tar -C "$work/root" --numeric-owner --owner=0 --group=0 -cf "$tarball.part" .
	mv "$tarball.part" "$tarball"
	docker image rm -f "$image" >/dev/null 2>&1 || true
fi

if ! docker image inspect "$image" >/dev/null 2>&1; then
	docker import --change 'CMD ["/bin/sh"]' "$tarball" "$image" >/dev/null
fi
echo "$image"
