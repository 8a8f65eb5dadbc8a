#!/bin/bash
# stream.sh URL KEY asks a model for a stream twenty times, and prints of each how long the first byte took, and all of it.
set -eu
for _ in {1..20}; do
	curl -sSN -o /dev/null -w 'took %{time_starttransfer} %{time_total} %{http_code}\n' -H "X-Api-Key: $2" -H 'Anthropic-Version: 2023-06-01' \
		-H 'Content-Type: application/json' -d '{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"say hello"}]}' "$1/v1/messages"
done
