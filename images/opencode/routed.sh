#!/bin/sh
# OpenCode, asked to go through the broker to the providers that it has a route to: their address is a setting. One's own
# OPENCODE_CONFIG_CONTENT stays.
set -eu
providers=
# routed adds a provider, by its address. OpenCode finds its key in the environment.
routed() {
	case $2 in
	http://127.0.0.1:*) providers="$providers${providers:+,}\"$1\":{\"options\":{\"baseURL\":\"$2\"}}" ;;
	esac
}
routed anthropic "${ANTHROPIC_BASE_URL:-}/v1"
routed openai "${OPENAI_BASE_URL:-}"
routed google "${GOOGLE_GEMINI_BASE_URL:-}/v1beta"
routed openrouter "${OPENROUTER_BASE_URL:-}"
routed mistral "${MISTRAL_BASE_URL:-}"
routed deepseek "${DEEPSEEK_BASE_URL:-}"
routed groq "${GROQ_BASE_URL:-}/openai/v1"
routed xai "${XAI_BASE_URL:-}"
case ${ANTHROPIC_BASE_URL:-} in
http://127.0.0.1:*) export ANTHROPIC_API_KEY="$ANTHROPIC_AUTH_TOKEN" ;;
esac
case ${GOOGLE_GEMINI_BASE_URL:-} in
http://127.0.0.1:*) export GOOGLE_GENERATIVE_AI_API_KEY="$GEMINI_API_KEY" ;;
esac
if [ -n "$providers" ] && [ -z "${OPENCODE_CONFIG_CONTENT:-}" ]; then
	export OPENCODE_CONFIG_CONTENT="{\"provider\":{$providers}}"
fi
exec /opt/opencode/bin/opencode "$@"
