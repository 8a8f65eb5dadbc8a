#!/bin/sh
# debian.sh is how the tests get what is Debian's. Each way works where apt was never used, and beside other scripts that
# use it. Debian's signatures verify what arrives.
#
#   debian.sh install TOOL:PACKAGE…         install the packages whose tool, or file, is not there; no server starts
#   debian.sh archive                       print the archive that apt is configured for; DEBIAN_MIRROR names another
#   debian.sh root DIR PACKAGE…             a minimal bookworm in DIR, with these packages
#   debian.sh download DIR PACKAGE…         these packages' files alone, into DIR
#   debian.sh closure DIR STATUS PACKAGE…   with all that they depend on and a root of that dpkg status lacks
#   debian.sh pool PATH SHA256 FILE         one file of the archive's pool, by its checksum
set -eu

usage() {
	sed -n 's/^#   //p' "$0" >&2
	exit 64
}

fail() {
	echo "debian.sh: $*" >&2
	exit 1
}

# apt waits for some of its locks only, and for none of its lists'. flock keeps its descriptor from what is started.
user=$(id -u)
lock=/run/lock/agent-init-test-apt
[ $# -gt 1 ] || [ "${1:-}" = archive ] || usage
if [ "$1" != root ] && [ "${AGENT_INIT_TEST_APT:-}" != "$lock" ]; then
	# Those who have none of it are helped by what they read there.
	if [ "$user" -eq 0 ] && command -v apt-get >/dev/null; then
		mkdir -p "${lock%/*}"
		AGENT_INIT_TEST_APT=$lock exec flock --close "$lock" "$0" "$@"
	fi
fi

get() {
	DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -o APT::Sandbox::User=root -qq -y --no-install-recommends "$@" >&2
}

install_missing() {
	missing=
	for pair; do
		tool=${pair%%:*}
		case $tool in
		/*) [ -e "$tool" ] ;;
		*) PATH=$PATH:/usr/sbin:/sbin:/usr/lib/podman command -v "$tool" >/dev/null ;;
		esac || missing="$missing ${pair##*:}"
	done
	[ -n "$missing" ] || return 0
	if [ "$user" -ne 0 ] || ! command -v apt-get >/dev/null; then
		fail "please install:$missing"
	fi
	echo "debian.sh: installing$missing" >&2
	# A server that is installed for a test is started by the test alone.
	policy=/usr/sbin/policy-rc.d
	if [ ! -e "$policy" ]; then
		trap 'rm -f "$policy"' EXIT
		trap 'exit 130' HUP INT TERM
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 0755 "$policy"
	fi
	get update
	# shellcheck disable=SC2086 # a list
	get install $missing
	case "$missing " in *" openssh-server "*) update-rc.d ssh disable >/dev/null 2>&1 || true ;; esac
}

archive() {
	if [ -n "${DEBIAN_MIRROR:-}" ]; then
		echo "$DEBIAN_MIRROR"
		return
	fi
	# Which archive is Debian's is known from its lists.
	for try in as-it-is updated; do
		[ "$try" = as-it-is ] || get update
		# shellcheck disable=SC2016
		known=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian')
		[ -z "$known" ] || break
	done
	[ -n "$known" ] || fail "apt knows no Debian archive here; name one as DEBIAN_MIRROR"
	known=${known%%"
"*}
	echo "${known%/}"
}

# root asks this script for what takes the lock, and does not hold it while it works.
root() {
	dir=$1
	shift
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	"$0" install debootstrap:debootstrap "$keyring:debian-archive-keyring"
	from=$("$0" archive)
	packages=$(echo "$*" | tr ' ' ,)
	PATH=$PATH:/usr/sbin:/sbin debootstrap --variant=minbase --keyring="$keyring" --force-check-gpg --include="$packages" bookworm "$dir" "$from"
}

command=$1
shift
case $command in
install) install_missing "$@" ;;
archive) archive ;;
root) root "$@" ;;
download)
	get update
	cd "$1"
	shift
	get download "$@"
	;;
closure)
	get update
	mkdir -p "$1/partial"
	debs=$1 status=$2
	shift 2
	get install --download-only -o Dir::State::status="$status" -o Dir::Cache::archives="$debs" -- "$@"
	;;
pool)
	from=$(archive)
	/usr/lib/apt/apt-helper -qq -o APT::Sandbox::User=root download-file "$from/pool/$1" "$3" "SHA256:$2" >&2
	;;
*) usage ;;
esac
