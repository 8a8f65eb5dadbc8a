#!/bin/bash
# A peer for the scorecard: NOT agent-init, and not a script of anybody else's. It was written from the public
# description of the firewall that the Claude Code devcontainer starts: all is denied but the addresses that a
# list of names has at the start, DNS, SSH, loopback and the host's own network; then it verifies itself.
set -euo pipefail

names="api.anthropic.com registry.npmjs.org sentry.io statsig.com"

iptables -F
iptables -A OUTPUT -o lo -j ACCEPT
iptables -A INPUT -i lo -j ACCEPT
iptables -A OUTPUT -p udp --dport 53 -j ACCEPT
iptables -A INPUT -p udp --sport 53 -j ACCEPT
iptables -A OUTPUT -p tcp --dport 22 -j ACCEPT

# The host's network, by the address of this container.
own=$(hostname -I | cut -d' ' -f1)
iptables -A OUTPUT -d "${own%.*}.0/24" -j ACCEPT
iptables -A INPUT -s "${own%.*}.0/24" -j ACCEPT

iptables -A INPUT -m state --state ESTABLISHED,RELATED -j ACCEPT
iptables -A OUTPUT -m state --state ESTABLISHED,RELATED -j ACCEPT

for name in $names; do
	getent ahostsv4 "$name" | awk '$2 == "STREAM" { print $1 }' | while read -r address; do
		iptables -A OUTPUT -d "$address" -j ACCEPT
	done
done

iptables -P INPUT DROP
iptables -P FORWARD DROP
iptables -P OUTPUT DROP
iptables -A OUTPUT -j REJECT --reject-with icmp-admin-prohibited

address() {
	getent ahostsv4 "$1" | awk 'NR == 1 { print $1 }'
}

if timeout 3 bash -c "exec 3<>/dev/tcp/$(address example.com)/443" 2>/dev/null; then
	echo "example.com can be reached" >&2
	exit 1
fi
timeout 3 bash -c "exec 3<>/dev/tcp/$(address api.anthropic.com)/443"
