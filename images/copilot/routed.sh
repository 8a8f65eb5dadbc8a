#!/bin/sh
# Copilot CLI, asked to go through the broker for a model of one's own, where COPILOT_PROVIDER_TYPE says whose, and nothing says
# where it is. With GitHub's models, nothing changes.
set -eu
case ${COPILOT_PROVIDER_TYPE:-} in
openai) base=${OPENAI_BASE_URL:-} key=${OPENAI_API_KEY:-} ;;
anthropic) base=${ANTHROPIC_BASE_URL:-} key=${ANTHROPIC_AUTH_TOKEN:-} ;;
*) base='' key='' ;;
esac
case ${COPILOT_PROVIDER_BASE_URL:-}$base in
http://127.0.0.1:*) export COPILOT_PROVIDER_BASE_URL="$base" COPILOT_PROVIDER_API_KEY="$key" ;;
esac
exec /opt/copilot/copilot "$@"
