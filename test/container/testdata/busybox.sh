#!/bin/sh
# busybox.sh is agent.sh for BusyBox, whose shell has no /dev/tcp. It runs the script that is its first argument, tries each
# PROTO/HOST/PORT after it, and says the same lines as agent.sh does; how long a probe took is not measured, and 0. nc doesn't say
# why it fails, so wget is asked. Of a datagram nothing is learned: it is "sent", and the far side knows.
echo "agent started"
while read -r field value; do
	case $field in
	Uid: | Gid: | Groups: | Cap*: | NoNewPrivs: | Seccomp:)
		# shellcheck disable=SC2086
		echo status "$field" $value
		;;
	esac
done </proc/self/status

sh -c "$1" </dev/null
code=$?
echo "command ended $code"
shift

for target; do
	proto=${target%%/*} port=${target##*/}
	host=${target#*/} host=${host%/*}
	if [ "$proto" = udp ]; then
		echo hello | nc -u -w 1 "$host" "$port" >/dev/null 2>&1
		echo "probe $target sent 0"
		continue
	fi
	if nc -z -w 5 "$host" "$port" </dev/null 2>/dev/null; then
		said=open
	else
		case $host in *:*) host="[$host]" ;; esac
		said=$(wget -q -O /dev/null -T 5 "http://$host:$port/" 2>&1)
	fi
	case $said in
	open) verdict=open ;;
	*"Connection refused"* | *"No route to host"* | *"Permission denied"* | *"Operation not permitted"*) verdict=refused ;;
	*"bad address"*) verdict=no-name ;;
	*) verdict=$(echo "$said" | tr -s '[:space:]' _) ;;
	esac
	echo "probe $target $verdict 0"
done
exit "$code"
