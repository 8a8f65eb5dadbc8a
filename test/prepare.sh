#!/usr/bin/env bash
# Installs what a task lacks on a Debian machine: prepare.sh base|lint|bench|peers|oracle|scorecard|all
# It says what it installs, and does nothing if all is there.
set -euo pipefail

declare -A packages=(
  [ip]=iproute2 [nsenter]=util-linux [curl]=curl [shellcheck]=shellcheck [gcc]=gcc [/usr/include/stdio.h]=libc6-dev
  [dnsmasq]=dnsmasq-base [dnsperf]=dnsperf [iptables]=iptables [ipset]=ipset [nft]=nftables
  [debootstrap]=debootstrap [npm]=npm [git]=git [python3]=python3 [tmux]=tmux [asciinema]=asciinema [sshd]=openssh-server
  [tini]=tini [dumb-init]=dumb-init [catatonit]=catatonit
  [xterm]=xterm [Xvfb]=xvfb [xclip]=xclip
  [squid]=squid [haproxy]=haproxy [mitmdump]=mitmproxy
)

case ${1:-all} in
  base) need="ip nsenter curl" ;;
  lint) need="shellcheck git" ;;
  bench) need="ip nsenter curl dnsmasq dnsperf iptables ipset tini dumb-init tmux squid haproxy mitmdump" ;;
  peers) need="tini dumb-init catatonit" ;;
  oracle) need="tmux xterm Xvfb xclip" ;;
  scorecard) need="ip nsenter iptables ipset debootstrap" ;;
  all) need="ip nsenter curl gcc /usr/include/stdio.h shellcheck git debootstrap npm iptables ipset nft tmux python3 asciinema sshd" ;;
  *) echo "usage: prepare.sh base|lint|bench|peers|oracle|scorecard|all" >&2; exit 64 ;;
esac

pairs=()
for tool in $need; do pairs+=("$tool:${packages[$tool]}"); done
exec "$(dirname "$0")/debian.sh" install "${pairs[@]}"
