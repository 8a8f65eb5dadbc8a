#!/bin/sh
# Crush, asked to go through the broker to the providers that it has a route to: it reads addresses under names of its own
# (github.com/charmbracelet/catwalk, internal/providers/configs, api_endpoint).
set -eu
case ${ANTHROPIC_BASE_URL:-} in
http://127.0.0.1:*) export ANTHROPIC_API_KEY="$ANTHROPIC_AUTH_TOKEN" ANTHROPIC_API_ENDPOINT="$ANTHROPIC_BASE_URL" ;;
esac
case ${OPENAI_BASE_URL:-} in
http://127.0.0.1:*) export OPENAI_API_ENDPOINT="$OPENAI_BASE_URL" ;;
esac
case ${GOOGLE_GEMINI_BASE_URL:-} in
http://127.0.0.1:*) export GEMINI_API_ENDPOINT="$GOOGLE_GEMINI_BASE_URL" ;;
esac
exec /opt/crush/crush "$@"
