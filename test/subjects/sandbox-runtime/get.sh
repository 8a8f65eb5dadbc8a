#!/bin/sh
# Gets sandbox-runtime of Anthropic's from npm, and the Node.js that it takes, into the directory $1.
set -eu
here=$(dirname "$0")
node=$("$here/../../npm.sh" node)
mkdir "$1/unpacked"
tar -xzf "$node" -C "$1/unpacked"
mv "$1"/unpacked/package/bin/node "$1/node"
rm -r "$1/unpacked"
npm ci --silent --prefix "$1" --ignore-scripts --omit=dev --omit=peer --omit=optional >&2
