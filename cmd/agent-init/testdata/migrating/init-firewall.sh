#!/bin/bash
set -euo pipefail
IFS=$'\n\t'

# Fetch the ranges of GitHub
gh_ranges=$(curl -s https://api.github.com/meta)
if [ -z "$gh_ranges" ]; then
    echo "ERROR: Failed to fetch the ranges"
    exit 1
fi
while read -r cidr; do
    ipset add allowed-domains "$cidr"
done < <(echo "$gh_ranges" | jq -r '(.web + .api + .git)[]' | aggregate -q)

# Resolve and add other allowed domains
for domain in \
    "registry.npmjs.org" \
    "api.anthropic.com" \
    "update.code.visualstudio.com" \
    "registry.corp.example"; do
    echo "Resolving $domain..."
    ips=$(dig +noall +answer A "$domain" | awk '$4 == "A" {print $5}')
    for ip in $ips; do
        ipset add allowed-domains "$ip"
    done
done
iptables -P OUTPUT DROP
