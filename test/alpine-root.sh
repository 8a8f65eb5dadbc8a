#!/bin/sh
# alpine-root.sh makes an image in the form of Alpine's, agent-init-test/alpine:stand-in, where Alpine's packages can't be had:
# a root filesystem of BusyBox and musl, and no byte of glibc. Both, and libcap's getcap and setcap, are built from Debian's
# sources; "apk" is apk-stand-in.sh. DOCKER_HOST says which engine. The root is kept as a tarball in AGENT_INIT_TEST_CACHE.
set -eu
cd "$(dirname "$0")"

cache=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
image=agent-init-test/alpine:stand-in
tarball=$cache/alpine-$(cat alpine-root.sh apk-stand-in.sh | sha256sum | cut -c1-12)-$(uname -m).tar

build() {
	command -v musl-gcc >/dev/null || {
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends musl-tools gcc libc6-dev make bzip2 xz-utils
	}
	# shellcheck disable=SC2016
	archive=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)}
	[ -n "$archive" ] || {
		echo "alpine-root.sh: apt knows no Debian archive here; name one as DEBIAN_MIRROR" >&2
		exit 1
	}
	# Past apt's own lists, which seldom have sources.
	mkdir -p "$work/src/lists/partial" "$work/root"
	cd "$work/src"
	echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive bookworm main" >sources.list
	set -- -qq -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$PWD/lists" -o APT::Sandbox::User=root
	apt-get "$@" update
	apt-get "$@" source --download-only busybox libcap2
	tar -xjf busybox_*.orig.tar.bz2
	tar -xJf libcap2_*.orig.tar.xz

	# musl's headers first, and the kernel's after them.
	headers="-idirafter /usr/include -idirafter /usr/include/$(gcc -print-multiarch)"
	cd "$work"/src/busybox-*
	make defconfig
	# tc doesn't compile against today's kernel headers. What "apk" adds as bash is BusyBox's shell.
	sed -i 's/^# CONFIG_STATIC is not set/CONFIG_STATIC=y/; s/^CONFIG_TC=y/# CONFIG_TC is not set/
		s/^CONFIG_BASH_IS_NONE=y/# CONFIG_BASH_IS_NONE is not set/; s/^# CONFIG_BASH_IS_ASH is not set/CONFIG_BASH_IS_ASH=y/' .config
	make -j2 CC=musl-gcc HOSTCC=gcc EXTRA_CFLAGS="$headers" CONFIG_PREFIX="$work/root" install
	cd "$work"/src/libcap-*
	make -C libcap CC="musl-gcc $headers" BUILD_CC=gcc USE_GPERF=no SHARED=no libcap.a
	for program in getcap setcap; do
		# A list of options.
		# shellcheck disable=SC2086
		musl-gcc $headers -static -s -Os -I libcap/include -o "$work/$program" "progs/$program.c" libcap/libcap.a
	done
}

# fill makes a root out of what was built.
fill() {
	cd "$work/root"
	mkdir -p dev etc/ssl/certs home lib proc root run sys tmp usr/local/bin var/log stand-in
	chmod 1777 tmp
	loader=$(echo /lib/ld-musl-*.so.1)
	cp -L "$loader" lib/
	ln -s "/$(echo lib/ld-musl-*)" "lib/libc.musl-$(uname -m).so.1"
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
	for package in bash ca-certificates git libcap-utils; do mkdir -p "stand-in/$package"; done
	mkdir -p stand-in/libcap-utils/usr/sbin stand-in/bash/bin stand-in/git/usr/bin
	cp "$work/getcap" "$work/setcap" stand-in/libcap-utils/usr/sbin/
	rm -f bin/bash usr/bin/bash
	ln -s busybox stand-in/bash/bin/bash
	printf '#!/bin/sh\necho "git: a stand-in"\n' >stand-in/git/usr/bin/git
	chmod 0755 stand-in/git/usr/bin/git
}

if [ ! -s "$tarball" ]; then
	here=$PWD
	mkdir -p "$cache"
	work=$(mktemp -d)
	trap 'rm -rf "$work" "$tarball.part"' EXIT
	trap 'exit 130' HUP INT TERM
	(build) >"$cache/alpine-root.log" 2>&1 || {
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
