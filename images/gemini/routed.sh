#!/bin/sh
# Gemini CLI, asked to go through the broker where it has a route to Gemini. With an address in the environment alone, Gemini
# takes a way to sign in that it then refuses; the defaults of the system name the right one. Your own settings go before them.
set -eu
case ${GOOGLE_GEMINI_BASE_URL:-} in
http://127.0.0.1:*) export GEMINI_CLI_SYSTEM_DEFAULTS_PATH="${GEMINI_CLI_SYSTEM_DEFAULTS_PATH:-/etc/gemini-cli/routed-defaults.json}" ;;
esac
exec /opt/gemini/bundle/gemini.js "$@"
