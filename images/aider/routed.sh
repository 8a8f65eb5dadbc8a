#!/bin/sh
# Aider, asked to go through the broker to the providers that it has a route to: it reads Anthropic's key under another name.
set -eu
case ${ANTHROPIC_BASE_URL:-} in
http://127.0.0.1:*) export ANTHROPIC_API_KEY="$ANTHROPIC_AUTH_TOKEN" ;;
esac
exec /opt/aider/bin/aider "$@"
