# shell.bash has bash say which failures are the policy's: a program that was refused says "could not resolve host", and a
# model that reads this blames the network. The base images have it as /usr/share/agent-init/shell.bash, and have bash
# read it: by BASH_ENV where an agent runs "bash -c COMMAND", and by /etc/bash.bashrc at a prompt.
#
# When a command ends, "agent-init hint" looks into the end of the log for what was refused to it, and says so on the
# standard error. Nothing else changes: no program has another name, exit codes and output stay as they are, and scripts,
# which are not read from -c, are none of its business. AGENT_HINTS=off turns it off.

case ${AGENT_HINTS:-on} in off | no | false | 0) return 0 ;; esac

# agent_init_hint STATUS COMMAND says what was refused since agent_init_began to what this shell has started. A command that
# may have fetched something is worth a moment's wait for the log.
agent_init_hint() {
	local about=other program=agent-init
	case $2 in *://* | *curl* | *wget* | *install* | *clone* | *fetch* | *pull* | *push*) about=fetches ;; esac
	[[ $EUID -ne 0 ]] || program=/usr/local/bin/agent-init # root's PATH may name directories that the agent writes to
	"$program" hint "$agent_init_began" "$$" "$1" "$about" </dev/null >&2 2>/dev/null || :
}

# A subshell inherits no trap for its end, and a shell that a signal ends runs it, too.
agent_init_to_end() {
	agent_init_began=$EPOCHREALTIME
	# shellcheck disable=SC2154 # it is, in there
	trap '{ agent_init_status=$?; set +x; } 2>/dev/null; agent_init_hint "$agent_init_status" "${BASH_EXECUTION_STRING-}"' EXIT
}

# agent_init_prompt is about a command line that was typed. What its last command exits with is kept for others who ask.
agent_init_prompt() {
	local status=$? all="${PIPESTATUS[*]}"
	case $all in *[1-9]*) agent_init_hint 1 "" ;; esac
	return "$status"
}

if [[ -n ${BASH_EXECUTION_STRING-} ]]; then
	# A shell with a trap stays until its command has ended, and one without becomes its last command, which whoever
	# started it may count on: so it has none for a single command that is not about to fetch something.
	case $BASH_EXECUTION_STRING in
	*[$';&|\n(`']*) agent_init_to_end ;;
	curl\ * | wget\ * | git\ * | pip\ * | pip3\ * | python*-m\ pip\ * | uv\ * | cargo\ * | go\ * | apt\ * | apt-get\ * | apk\ *) agent_init_to_end ;;
	npm\ i* | npm\ ci* | npm\ add* | npm\ up* | npx\ * | pnpm\ * | yarn\ *) agent_init_to_end ;;
	esac
elif [[ $- == *i* ]]; then
	if [[ -z ${agent_init_began-} ]]; then
		agent_init_began=$EPOCHREALTIME
		# Only what is expanded in this shell itself can set a variable before a command begins: an offset can.
		# shellcheck disable=SC2016 # for bash to expand, each time
		PS0=${PS0-}'${PS4:((agent_init_began=EPOCHSECONDS, 0)):0}'
		PROMPT_COMMAND="agent_init_prompt${PROMPT_COMMAND:+; $PROMPT_COMMAND}"
		[[ ! -e /run/agent-init/README.md ]] ||
			echo 'The network is confined: "agent-init explain NAME" says why something is refused.' >&2
	fi
fi
