#!/usr/bin/env bash
# Installs what a task lacks on a Debian machine: prepare.sh base|test|lint|bench|peers|oracle|scorecard|clients|all
# It says what it installs, and does nothing if all is there.
set -euo pipefail

squid=/usr/lib/squid/security_file_certgen # only the variant with OpenSSL can look into TLS
declare -A packages=(
  [ip]=iproute2 [nsenter]=util-linux [ps]=procps [curl]=curl [shellcheck]=shellcheck [gcc]=gcc [/usr/include/stdio.h]=libc6-dev
  [dnsmasq]=dnsmasq-base [dnsperf]=dnsperf [iptables]=iptables [ipset]=ipset [nft]=nftables
  [debootstrap]=debootstrap [npm]=npm [git]=git [python3]=python3 [tmux]=tmux [asciinema]=asciinema [sshd]=openssh-server
  [tini]=tini [dumb-init]=dumb-init [catatonit]=catatonit
  [xterm]=xterm [Xvfb]=xvfb [xclip]=xclip
  [git-lfs]=git-lfs [/usr/sbin/apache2]=apache2-bin [/usr/sbin/nginx]=nginx-light [nghttpx]=nghttp2-proxy [wget]=wget [node]=nodejs [java]=default-jdk-headless [gh]=gh
  [/usr/lib/python3/dist-packages/requests]=python3-requests [/usr/lib/python3/dist-packages/httpx]=python3-httpx
  [/usr/lib/python3/dist-packages/websockets]=python3-websockets [/usr/lib/python3/dist-packages/grpc]=python3-grpcio
  [mvn]=maven [/usr/lib/python3/dist-packages/pip]=python3-pip
  [chromium]=chromium
  [$squid]=squid-openssl [haproxy]=haproxy [mitmdump]=mitmproxy
)

clients="curl git git-lfs /usr/sbin/apache2 /usr/sbin/nginx nghttpx wget node java gh python3 /usr/lib/python3/dist-packages/requests /usr/lib/python3/dist-packages/httpx"
clients+=" /usr/lib/python3/dist-packages/websockets /usr/lib/python3/dist-packages/grpc npm mvn /usr/lib/python3/dist-packages/pip"
case ${1:-all} in
  base) need="ip nsenter curl" ;;
  test) need="ps ip nsenter curl git python3 debootstrap npm" ;;
  lint) need="shellcheck git" ;;
  bench) need="ip nsenter curl dnsmasq dnsperf iptables ipset tini dumb-init tmux $squid haproxy mitmdump" ;;
  peers) need="tini dumb-init catatonit" ;;
  oracle) need="tmux xterm Xvfb xclip" ;;
  scorecard) need="ip nsenter iptables ipset debootstrap" ;;
  clients) need=$clients ;;
  all) need="$clients chromium ps ip nsenter curl gcc /usr/include/stdio.h shellcheck git debootstrap npm iptables ipset nft tmux python3 asciinema sshd $squid mitmdump" ;;
  *) echo "usage: prepare.sh base|test|lint|bench|peers|oracle|scorecard|clients|all" >&2; exit 64 ;;
esac

pairs=()
for tool in $need; do pairs+=("$tool:${packages[$tool]}"); done
exec "$(dirname "$0")/debian.sh" install "${pairs[@]}"
