#!/bin/sh
# Codex reads CODEX_API_KEY for "codex exec" alone: on a terminal it would ask to sign in. This signs in with the key.
set -eu
if [ -n "${CODEX_API_KEY:-}" ] && [ ! -e "$CODEX_HOME/auth.json" ]; then
	printenv CODEX_API_KEY | codex login --with-api-key
fi
exec codex "$@"
