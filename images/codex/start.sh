#!/bin/sh
# Codex reads CODEX_API_KEY for "codex exec" alone: on a terminal it would ask to sign in. This signs in with the key, and
# again when there is another key. A person's own sign-in stays. Where the broker has the key, this signs out again, so that
# the key is in no file of the agent's.
set -eu
signed=$CODEX_HOME/signed-in-with # the key's checksum
if [ -n "${CODEX_API_KEY:-}" ]; then
	key=$(printenv CODEX_API_KEY | sha256sum)
	last=$key
	[ ! -e "$signed" ] || last=$(cat "$signed")
	if [ ! -e "$CODEX_HOME/auth.json" ] || [ "$last" != "$key" ]; then
		printenv CODEX_API_KEY | codex login --with-api-key
		echo "$key" >"$signed"
	fi
else
	case ${OPENAI_BASE_URL:-} in
	http://127.0.0.1:*/v1)
		if [ -e "$signed" ]; then
			own=$(find "$CODEX_HOME/auth.json" -newer "$signed" 2>/dev/null || true) # a person has signed in since
			[ -n "$own" ] || rm -f "$CODEX_HOME/auth.json"
			rm -f "$signed"
		fi
		;;
	esac
fi
exec codex "$@"
