#!/bin/bash
# What is commonly done in place of agent-init: resolve each name once with
# getent, open its addresses with one iptables call each, then drop the rest.
# Usage: init-firewall.sh 4|46 COMMAND…
set -euo pipefail
families=$1
shift

rules() {
  "$1" -F
  "$1" -A OUTPUT -o lo -j ACCEPT
  "$1" -A INPUT -i lo -j ACCEPT
  "$1" -A OUTPUT -p udp --dport 53 -j ACCEPT
  "$1" -A INPUT -m state --state ESTABLISHED,RELATED -j ACCEPT
  "$1" -A OUTPUT -m state --state ESTABLISHED,RELATED -j ACCEPT
}

close() {
  "$1" -P INPUT DROP
  "$1" -P FORWARD DROP
  "$1" -P OUTPUT DROP
}

rules iptables
database=ahostsv4
if [ "$families" = 46 ]; then
  rules ip6tables
  database=ahosts
fi

while read -r name; do
  while read -r address type _; do
    [ "$type" = STREAM ] || continue
    case $address in
      *:*) ip6tables -A OUTPUT -d "$address" -j ACCEPT ;;
      *) iptables -A OUTPUT -d "$address" -j ACCEPT ;;
    esac
  done < <(getent "$database" "$name")
done < /etc/names

close iptables
if [ "$families" = 46 ]; then close ip6tables; fi
exec "$@"
