#!/bin/bash
# crush.sh stands in for Crush where the real one can't be had. It reads the same configuration, asks the model that it
# names, and its MCP server, by the same protocols, and says what they said:
#
#   crush run PROMPT      once
#   crush                 for each line that is typed
set -u
config=${CRUSH_GLOBAL_CONFIG:-$HOME/.config/crush}/crush.json

# setting prints the first text of a key in the configuration.
setting() {
	sed -n "s/.*\"$1\": *\"\(http[^\"]*\)\".*/\1/p" "$config" | head -n 1
}

# post sends a body to a URL, and prints the last line of the answer.
post() {
	local rest=${1#http://} host path
	host=${rest%%/*}
	path=/${rest#*/}
	exec 3<>"/dev/tcp/${host%:*}/${host#*:}" || return
	printf 'POST %s HTTP/1.0\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s' \
		"$path" "$host" "${#2}" "$2" >&3
	tail -n 1 <&3
	exec 3>&-
}

answer() {
	echo "model: $(post "$(setting base_url)/chat/completions" "{\"model\": \"local\", \"messages\": [{\"role\": \"user\", \"content\": \"$1\"}]}")"
	[ -z "$(setting url)" ] || echo "search: $(post "$(setting url)" '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}')"
}

case ${1:-} in
--version) echo "crush, a stand-in" ;;
run) answer "${2:-}" ;;
*)
	while printf 'crush> ' && IFS= read -r line; do
		[ "$line" != quit ] || exit 0
		answer "$line"
	done
	;;
esac
