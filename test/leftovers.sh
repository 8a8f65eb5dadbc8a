#!/bin/sh
# leftovers.sh runs a program of tests where an earlier agent-init has left its files, and a person has settings of their
# own: leftovers.sh PROGRAM [ARGUMENT…], for "go test -exec". None of that may matter to a test, and none may be touched by
# one: a change fails the program. It is in a mount namespace of its own, and goes with it.
set -eu

here=$(readlink -f "$0")
if [ "${1:-}" != --inside ]; then
	user=$(id -u)
	[ "$user" -eq 0 ] || exec "$@" # only root may mount
	case $PWD in */test/session) exec "$@" ;; esac # it shows a person's own shell
	vars=$(go env GOCACHE GOMODCACHE GOPATH) # HOME says no more where they are
	{
		read -r GOCACHE
		read -r GOMODCACHE
		read -r GOPATH
	} <<EOF
$vars
EOF
	export GOCACHE GOMODCACHE GOPATH
	exec unshare --mount --propagation private -- "$here" --inside "$@"
fi
shift

# put FILE TEXT
put() {
	mkdir -p "${1%/*}"
	printf '%s\n' "$2" >"$1"
}

HOME=/var/lib/agent-init/home
export HOME ANTHROPIC_API_KEY=leftover OPENAI_API_KEY=leftover AGENT_INIT_SESSION=leftover
dirs="/run/agent-init /dev/shm/agent-init /etc/agent-init /var/lib/agent-init /var/log/agent-init"
for dir in $dirs; do
	mkdir -p "$dir"
	mount -t tmpfs -o mode=0755,size=1m leftovers "$dir"
done
status='{"version":1,"phase":"ended","mode":"run","reason":"left over","keeper":{"pid":4194304,"start":1},"agent":{"user":"leftover","uid":4321}}'
put /run/agent-init/status.json "$status"
put /run/agent-init/policy.jsonl '{"leftover": '
put /dev/shm/agent-init/status.json '{"leftover": '
for file in agent.json broker.env grants.json leases.json selftest.json README.md; do put /run/agent-init/$file '{"leftover": '; done
put /etc/agent-init/policy.yaml 'leftover: ['
put /etc/agent-init/allowlist.txt '*.com'
put /etc/agent-init/ceiling.d/policy.yaml 'leftover: ['
put /var/lib/agent-init/allowlist.d/granted.txt '*.com'
put /var/lib/agent-init/ceiling/seen leftover
put /var/lib/agent-init/phase/setup leftover
put /var/log/agent-init/audit.jsonl '{"leftover": '
put "$HOME/.gitconfig" '[core]
hooksPath = /leftover
[commit]
gpgsign = true
[init]
defaultBranch = leftover'
put "$HOME/.config/go/telemetry/mode" 'off 2026-01-01' # or go writes there
put "$HOME/.bashrc" 'echo leftover; exit 1'
put "$HOME/.npmrc" 'registry=http://leftover.invalid/'
put "$HOME/.docker/config.json" '{"leftover": '
put "$HOME/.claude/settings.json" '{"leftover": '

# seen is all that there is: kinds, owners, modes, sizes, times and contents.
seen() {
	# shellcheck disable=SC2086 # a list
	find $dirs -printf '%p %y %U %m %s %T@\n'
	# shellcheck disable=SC2086
	find $dirs -type f -exec cksum {} +
}
before=$(seen)
rc=0
"$@" || rc=$?
after=$(seen)
if [ "$after" != "$before" ]; then
	echo "leftovers.sh: a test has touched what is not its own:" >&2
	printf '%s\n%s\n' "$before" "$after" | sort | uniq -u >&2
	[ "$rc" -ne 0 ] || rc=1
fi
exit "$rc"
