#!/usr/bin/env bash
# Installs what a task lacks on a Debian machine: prepare.sh base|lint|bench|peers|scorecard|all
# It says what it installs, and does nothing if all is there.
set -euo pipefail

declare -A packages=(
  [ip]=iproute2 [nsenter]=util-linux [curl]=curl [shellcheck]=shellcheck [gcc]=gcc
  [dnsmasq]=dnsmasq-base [dnsperf]=dnsperf [iptables]=iptables [ipset]=ipset [nft]=nftables
  [debootstrap]=debootstrap [npm]=npm [git]=git [python3]=python3 [tmux]=tmux [asciinema]=asciinema [sshd]=openssh-server
  [tini]=tini [dumb-init]=dumb-init [catatonit]=catatonit
  [squid]=squid [haproxy]=haproxy [mitmdump]=mitmproxy
)

case ${1:-all} in
  base) need="ip nsenter curl" ;;
  lint) need="shellcheck git" ;;
  bench) need="ip nsenter curl dnsmasq dnsperf iptables ipset tini dumb-init tmux squid haproxy mitmdump" ;;
  peers) need="tini dumb-init catatonit" ;;
  scorecard) need="ip nsenter iptables ipset debootstrap" ;;
  all) need="ip nsenter curl gcc shellcheck git debootstrap npm iptables ipset nft tmux python3 asciinema sshd" ;;
  *) echo "usage: prepare.sh base|lint|bench|peers|scorecard|all" >&2; exit 64 ;;
esac

missing=()
for tool in $need; do
  PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || missing+=("${packages[$tool]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "prepare.sh: please install: ${missing[*]}" >&2
  exit 1
fi
echo "prepare.sh: installing ${missing[*]}" >&2
# A server that is installed for a test is started by the test alone.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 0755 "$policy"
  trap 'rm -f "$policy"' EXIT # which bash runs however it ends
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
case " ${missing[*]} " in *" openssh-server "*) update-rc.d ssh disable >/dev/null 2>&1 || true ;; esac
