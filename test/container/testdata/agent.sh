#!/bin/bash
# agent.sh is the agent of the container tests. It says who it is, runs the command before "--", and
# then tries each PROTO/HOST/PORT after it, three times each. One line per finding:
#
#   status FIELD VALUE
#   probe PROTO/HOST/PORT VERDICT MICROSECONDS     of the quickest try
#
# VERDICT is open, refused, no-name, or what bash said.
set -u
echo "agent started"
while read -r field value; do
	case $field in
	Uid: | Gid: | Groups: | Cap*: | NoNewPrivs: | Seccomp:) echo "status $field ${value//$'\t'/ }" ;;
	esac
done </proc/self/status

command=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	command+=("$1")
	shift
done
[ $# -eq 0 ] || shift
code=0
if [ ${#command[@]} -gt 0 ]; then
	"${command[@]}" </dev/null || code=$?
	echo "command ended $code"
fi

try() {
	local begin end said
	begin=${EPOCHREALTIME/[.,]/}
	# The second datagram is the one that learns what became of the first.
	said=$({ exec 3<>"/dev/$1/$2/$3" && { [ "$1" = tcp ] || { echo a >&3 && echo b >&3; }; }; } 2>&1) && said=open
	end=${EPOCHREALTIME/[.,]/}
	took=$((end - begin))
	case $said in
	open) verdict=open ;;
	*"Connection refused"* | *"No route to host"* | *"Permission denied"* | *"Operation not permitted"*) verdict=refused ;;
	*"Name or service not known"* | *"No address associated"*) verdict=no-name ;;
	*) verdict=${said//[[:space:]]/_} ;;
	esac
}

for target; do
	IFS=/ read -r proto host port <<<"$target"
	best=
	for _ in 1 2 3; do
		try "$proto" "$host" "$port"
		[ -n "$best" ] && [ "$best" -le "$took" ] || best=$took
	done
	echo "probe $target $verdict $best"
done
exit "$code"
