#!/bin/sh
# screens.sh holds the interfaces of real agents in a session against the same agents on a terminal of
# their own: it gets them from npm, unpacks them, and runs TestContainerAgentScreens. Arguments go to "go test".
#
# AGENTS="claude codex" tests only those. No network is there for the agents, and no engine is needed.
set -eu
cd "$(dirname "$0")/.."

AGENT_INIT_TEST_CACHE=${AGENT_INIT_TEST_CACHE:-${XDG_CACHE_HOME:-/var/cache}/agent-init-test}
export AGENT_INIT_TEST_CACHE
clis=$(mktemp -d)
trap 'rm -r "$clis"' EXIT
trap 'exit 130' HUP INT TERM
chmod 0755 "$clis"

# unpack NAME TARBALL LEVELS
unpack() {
	mkdir "$clis/$1"
	tar -xzf "$2" -C "$clis/$1" --strip-components="$3" --no-same-owner
}

tarball=$(test/npm.sh node)
unpack node "$tarball" 1
for agent in claude codex gemini opencode; do
	case " ${AGENTS:-$agent} " in *" $agent"*) ;; *) continue ;; esac
	levels=1
	[ "$agent" != codex ] || levels=3
	package=$(images/fetch.sh "$agent")
	unpack "$agent" "$package" "$levels"
done
chmod -R u=rwX,go=rX "$clis"

export AGENT_INIT_MUST_RUN=1 AGENT_INIT_AGENT_CLIS="$clis"
go test -count=1 -timeout 40m -run '^TestContainerAgentScreens' "$@" ./test/session
