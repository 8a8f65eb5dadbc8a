#!/bin/sh
# charts.sh gets what the tests of the Helm chart need, and prints where helm is, and the program that checks manifests.
set -eu
cd "$(dirname "$0")/../.."

program=$(test/kubecheck.sh)
charts=$(test/charts.sh)
echo "AGENT_INIT_KUBECHECK=$program"
echo "AGENT_INIT_CHARTS=$charts"
