#!/bin/sh
# alpine-build.sh is the part of alpine-root.sh that builds: BusyBox into the directory WORK/root, getcap and setcap into
# WORK. Both are Debian's sources as their authors published them, which stay the same while Debian mends its packages.
#
#   alpine-build.sh WORK
set -eu
cd "$(dirname "$0")"
here=$PWD
work=$1

./debian.sh install musl-gcc:musl-tools gcc:gcc /usr/include/stdio.h:libc6-dev make:make bzip2:bzip2 xz:xz-utils
mkdir -p "$work/src" "$work/root"
cd "$work/src"
"$here/debian.sh" pool main/b/busybox/busybox_1.35.0.orig.tar.bz2 \
	faeeb244c35a348a334f4a59e44626ee870fb07b6884d68c10ae8bc19f83a694 "$PWD/busybox.tar.bz2"
"$here/debian.sh" pool main/libc/libcap2/libcap2_2.66.orig.tar.xz \
	15c40ededb3003d70a283fe587a36b7d19c8b3b554e33f86129c059a4bb466b2 "$PWD/libcap.tar.xz"
tar -xjf busybox.tar.bz2
tar -xJf libcap.tar.xz

# musl's headers first, and the kernel's after them.
multiarch=$(gcc -print-multiarch)
headers="-idirafter /usr/include -idirafter /usr/include/$multiarch"
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
