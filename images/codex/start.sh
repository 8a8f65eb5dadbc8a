#!/bin/sh
# Codex reads CODEX_API_KEY for "codex exec" alone: on a terminal it would ask to sign in. This signs in with the key, and
# again when there is another key. A person's own sign-in stays.
set -eu
if [ -n "${CODEX_API_KEY:-}" ]; then
	signed=$CODEX_HOME/signed-in-with # the key's checksum
	key=$(printenv CODEX_API_KEY | sha256sum)
	last=$key
	[ ! -e "$signed" ] || last=$(cat "$signed")
	if [ ! -e "$CODEX_HOME/auth.json" ] || [ "$last" != "$key" ]; then
		printenv CODEX_API_KEY | codex login --with-api-key
		echo "$key" >"$signed"
	fi
fi
exec codex "$@"
