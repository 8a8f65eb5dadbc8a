#!/bin/sh
# OpenCode, asked to go through the broker to the providers that it has a route to: their address is a setting. One's own
# OPENCODE_CONFIG_CONTENT stays.
set -eu
providers=
# routed adds a provider, by its address and the variable with its key.
routed() {
	case $2 in
	http://127.0.0.1:*) providers="$providers${providers:+,}\"$1\":{\"options\":{\"baseURL\":\"$2\",\"apiKey\":\"{env:$3}\"}}" ;;
	esac
}
routed anthropic "${ANTHROPIC_BASE_URL:-}/v1" ANTHROPIC_AUTH_TOKEN
routed openai "${OPENAI_BASE_URL:-}" OPENAI_API_KEY
routed google "${GOOGLE_GEMINI_BASE_URL:-}/v1beta" GEMINI_API_KEY
routed openrouter "${OPENROUTER_BASE_URL:-}" OPENROUTER_API_KEY
routed mistral "${MISTRAL_BASE_URL:-}" MISTRAL_API_KEY
routed deepseek "${DEEPSEEK_BASE_URL:-}" DEEPSEEK_API_KEY
routed groq "${GROQ_BASE_URL:-}/openai/v1" GROQ_API_KEY
routed xai "${XAI_BASE_URL:-}" XAI_API_KEY
if [ -n "$providers" ] && [ -z "${OPENCODE_CONFIG_CONTENT:-}" ]; then
	export OPENCODE_CONFIG_CONTENT="{\"provider\":{$providers}}"
fi
exec /opt/opencode/bin/opencode "$@"
