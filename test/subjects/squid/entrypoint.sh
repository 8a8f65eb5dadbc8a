#!/bin/bash
# Starts the proxy, lets nobody but its user out, and becomes the agent's command as a user without privileges.
set -eu
for neighbours in solicitation advertisement; do # without which there is no IPv6
	ip6tables -A OUTPUT -p icmpv6 --icmpv6-type "neighbour-$neighbours" -j ACCEPT
done
for table in iptables ip6tables; do
	$table -A OUTPUT -o lo -j ACCEPT
	$table -A OUTPUT -m owner --uid-owner proxy -j ACCEPT
	$table -A OUTPUT -j REJECT
done
setpriv --reuid=proxy --regid=proxy --clear-groups --inh-caps=-all squid -N >/tmp/proxy.log 2>&1 &
tries=0
until (: 3<>/dev/tcp/127.0.0.1/3128) 2>/dev/null; do
	tries=$((tries + 1))
	[ "$tries" -lt 100 ] || { cat /tmp/proxy.log >&2; exit 1; }
	sleep 0.1
done
export HTTP_PROXY=http://127.0.0.1:3128 HTTPS_PROXY=http://127.0.0.1:3128
# PID 1 stays root's.
setpriv --reuid=1000 --regid=1000 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "$@"
