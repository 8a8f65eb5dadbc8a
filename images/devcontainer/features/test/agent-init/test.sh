#!/bin/bash
# test.sh is run inside, by "devcontainer features test": as the remote user, in a container with the feature's defaults.
set -e
# shellcheck disable=SC1091 # the client puts it there
source dev-container-features-test-lib

check "confined and proved" agent-init wait
check "healthy" agent-init status
# shellcheck disable=SC2016
check "not root, and not able to be" bash -c '[ "$(id -u)" != 0 ] && grep -qx "NoNewPrivs:.1" /proc/self/status && ! sudo -n true 2>/dev/null'
check "no privilege" bash -c 'grep -qx "CapEff:.0000000000000000" /proc/self/status'
check "nothing can be reached by default" bash -c '! (exec 3<>/dev/tcp/1.1.1.1/443) 2>/dev/null'
check "the policy is root's" bash -c '[ ! -w /etc/agent-init ] && [ ! -w /etc/agent-init/allowlist.d/feature.txt ]'
reportResults
