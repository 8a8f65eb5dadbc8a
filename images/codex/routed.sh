#!/bin/sh
# Codex, asked to go through the broker where it has a route to OpenAI. Codex reads no address from the environment, and of
# its own provider wants a sign-in; a provider of the command line needs none. Its web search and images are requests of their
# own, which the route has not. A provider that ~/.codex/config.toml names stays.
set -eu
case ${OPENAI_BASE_URL:-} in
http://127.0.0.1:*/v1)
	if ! grep -qs '^ *model_provider *=' "${CODEX_HOME:-$HOME/.codex}/config.toml"; then
		set -- -c 'model_provider="broker"' -c 'web_search="disabled"' \
			-c "model_providers.broker={name=\"OpenAI\",base_url=\"$OPENAI_BASE_URL\",env_key=\"OPENAI_API_KEY\",wire_api=\"responses\"}" "$@"
	fi
	;;
esac
exec /opt/codex/bin/codex "$@"
