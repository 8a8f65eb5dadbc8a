#!/bin/sh
# agent.sh is what the images of all agents have in common. The base images have it as /usr/share/agent-init/agent.sh.
#
#   agent.sh unpack AGENT VERSION PROGRAM [STRIP]
#       checks /dist/AGENT-PLATFORM-VERSION.tgz against /dist/SHA*SUMS, and unpacks it to /opt/AGENT, without the first
#       STRIP (1) parts of its paths. PROGRAM is the executable there.
#   agent.sh install AGENT COMMAND PROGRAM STATE…
#       makes /usr/local/bin/COMMAND lead to /opt/AGENT/PROGRAM, writes an allowlist of the agent's preset and of the entry
#       in the variable PROVIDER, and makes the directories STATE of the agent's home.
#   agent.sh routes AGENT ROUTE…
#       has the agent's image come with routes of the broker: each is there if its credential is. It comes before install.
#
# PLATFORM is any, or x64 or arm64, followed by -musl on Alpine if there is such a package.
set -eu

fail() {
	echo "agent.sh: $*" >&2
	exit 1
}

# package prints the name of the package that dist holds of the agent, for this machine.
package() {
	machine=$(uname -m)
	case $machine in
		x86_64) machine=x64 ;;
		aarch64) machine=arm64 ;;
		*) fail "no agent is packed for $machine" ;;
	esac
	musl=
	[ ! -e /etc/alpine-release ] || musl=-musl
	# A package of musl's that is known must be there. Programs that link statically have one package for both.
	[ -z "$musl" ] || grep -qs -- "  $1-$machine-musl-$2.tgz\$" SHA*SUMS || musl=
	for platform in any "$machine$musl"; do
		file=$1-$platform-$2.tgz
		[ ! -e "$file" ] || { echo "$file" && return; }
	done
	fail "dist/$file is missing: run images/fetch.sh $1"
}

# verify ends the build unless the package is the one that is pinned.
verify() {
	for sums in SHA512SUMS SHA256SUMS; do
		[ -e "$sums" ] || continue
		pinned=$(grep -F -- "  $1" "$sums") || fail "$sums does not know $1"
		case $sums in
			SHA512SUMS) echo "$pinned" | sha512sum -c - ;;
			SHA256SUMS) echo "$pinned" | sha256sum -c - ;;
		esac
		return
	done
	fail "there are no checksums of $1: copy SHA512SUMS or SHA256SUMS beside it"
}

unpack() {
	agent=$1 version=$2 program=$3
	cd /dist
	file=$(package "$agent" "$version")
	# npm has verified what package-lock.json pins, and the package is made out of that.
	[ -e package-lock.json ] || verify "$file"
	mkdir -p "/opt/$agent"
	tar -xzf "$file" -C "/opt/$agent" --strip-components="${4:-1}" --no-same-owner
	chmod -R u=rwX,go=rX "/opt/$agent"
	chmod 0755 "/opt/$agent/$program"
}

routes() {
	agent=$1
	shift
	routes=/etc/agent-init/allowlist.d/$agent.yaml
	echo "# The broker's routes for $agent: each is there if its credential is. Mount a file of your own over this one to change them." >"$routes"
	echo "broker:" >>"$routes"
	for route; do
		echo "  $route: {optional: true}" >>"$routes"
	done
	chmod 0644 "$routes"
}

install() {
	agent=$1 command=$2 program=$3
	shift 3
	allowlist=/etc/agent-init/allowlist.d/$agent.txt
	echo "# What $agent needs. The provider of a model of your choice goes below it, or into --build-arg PROVIDER=HOST." >"$allowlist"
	echo "@$agent" >>"$allowlist"
	case ${PROVIDER:-} in
		'') ;;
		@*) echo "$PROVIDER  # the provider, from the build" >>"$allowlist" ;;
		*) echo "$PROVIDER unbrokered  # the provider, from the build" >>"$allowlist" ;;
	esac
	echo "$agent" >/usr/share/agent-init/agent # whose image this is, for telemetry
	chmod 0644 "$allowlist" /usr/share/agent-init/agent
	/usr/local/bin/agent-init check "$allowlist"
	[ ! -e "/etc/agent-init/allowlist.d/$agent.yaml" ] || /usr/local/bin/agent-init check
	ln -s "/opt/$agent/$program" "/usr/local/bin/$command"
	for state; do
		dir=/home/agent
		# Each part of the path is the agent's.
		for part in $(echo "$state" | tr / ' '); do
			dir=$dir/$part
			[ -d "$dir" ] || { mkdir -m 0700 "$dir" && chown agent:agent "$dir"; }
		done
	done
}

case ${1:-} in
	unpack | install | routes) "$@" ;;
	*) fail "usage: agent.sh unpack AGENT VERSION PROGRAM [STRIP], agent.sh routes AGENT ROUTE…, or agent.sh install AGENT COMMAND PROGRAM STATE…" ;;
esac
