#!/bin/sh
# pi, asked to go through the broker to the providers that it has a route to: an extension says where they are.
exec /opt/pi/node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js --extension /opt/pi/routed.js "$@"
