#!/bin/sh
# Goose, asked to go through the broker to the providers that it has a route to: it reads their keys under names of its own.
set -eu
case ${ANTHROPIC_BASE_URL:-} in
http://127.0.0.1:*) export ANTHROPIC_API_KEY="$ANTHROPIC_AUTH_TOKEN" ;;
esac
case ${GOOGLE_GEMINI_BASE_URL:-} in
http://127.0.0.1:*) export GOOGLE_API_KEY="$GEMINI_API_KEY" ;;
esac
exec /opt/goose/bin/goose "$@"
