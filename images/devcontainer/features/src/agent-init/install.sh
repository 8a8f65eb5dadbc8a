#!/bin/sh
# install.sh is run as root by whatever builds an image with this feature, in the feature's own directory, with its
# options in the environment: https://containers.dev/implementors/features/
set -eu

fail() {
	echo "agent-init: $1" >&2
	echo "  remedy: $2" >&2
	exit 1
}

# What confines the container runs as its first user, and must be root; what is confined must not be.
user=${_REMOTE_USER:-root}
uid=$(id -u "$user" 2>/dev/null) || fail "the image has no user $user" "name one that it has as remoteUser; if another feature makes it, put that first in overrideFeatureInstallOrder"
[ "$uid" -ne 0 ] || fail "an agent that is root can't be confined, and remoteUser is $user" "set remoteUser to another user of the image, such as vscode or node"
[ "$(id -u "${_CONTAINER_USER:-root}")" -eq 0 ] || fail "the container's first process is $_CONTAINER_USER's, and only root can confine it" 'set "containerUser": "root"; people and agents stay remoteUser'

case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) fail "there is no agent-init for $(uname -m)" "use a machine of amd64 or arm64" ;;
esac

# checked says whether a file has one of the checksums that were given.
checked() {
	sum=$(sha256sum "$1")
	case ",$(echo "${SHA256:-}" | tr -d ' ')," in *",${sum%% *},"*) ;; *) return 1 ;; esac
}

program=bin/agent-init-$arch
if [ -n "${URL:-}" ]; then
	from=$(echo "$URL" | sed "s/ARCH/$arch/g")
	[ -n "${SHA256:-}" ] || fail "the option url is set, and sha256 is not" "pin what $from must be, or set neither"
	program=$(mktemp)
	if command -v curl >/dev/null; then
		curl -fsSL --retry 3 -o "$program" "$from" || fail "$from can't be had" "look at the address, and at the network of the build"
	elif command -v wget >/dev/null; then
		wget -q -O "$program" "$from" || fail "$from can't be had" "look at the address, and at the network of the build"
	else
		fail "the image has neither curl nor wget to get $from with" "install one of them, or leave the option url empty"
	fi
	checked "$program" || fail "$from is not what sha256 says: ${sum%% *}" "correct the option sha256, if it is the release that you meant"
fi
[ -s "$program" ] || fail "this copy of the feature has no executable for $arch" "use a published one, or set the options url and sha256"

install -o root -g root -m 0711 "$program" /usr/local/bin/agent-init
/usr/local/bin/agent-init version >/dev/null || fail "agent-init does not run in this image" "report this with the image's name"
[ -z "${URL:-}" ] || rm -f "$program"

install -d -o root -g root -m 0755 /etc/agent-init /etc/agent-init/allowlist.d
list=/etc/agent-init/allowlist.d/feature.txt
echo "${ALLOW:-}" | tr ',' '\n' >"$list"
for manager in $(echo "${DETECT:-}" | tr ',' ' '); do
	/usr/local/bin/agent-init detect "$manager" >>"$list"
done
chmod 0644 "$list"
/usr/local/bin/agent-init check "$list" || fail "the options allow and detect make no allowlist" "correct what is named above"

# The start looks for the user by name, since its uid may still be changed to yours.
settings=/etc/agent-init/policy.yaml
if [ ! -e "$settings" ]; then
	echo "user: $user" >"$settings"
	chmod 0644 "$settings"
elif ! grep -qE "^user: *[\"']?${user}[\"']? *(#.*)?\$" "$settings"; then
	fail "the image's $settings does not say \"user: $user\"" "add that line: the agent is the remoteUser here"
fi
