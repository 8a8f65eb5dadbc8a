#!/bin/sh
# Builds smokescreen of Stripe's, from the Go proxy, into the directory $1.
set -eu
GOBIN=$1 CGO_ENABLED=0 GOFLAGS=-trimpath go install github.com/stripe/smokescreen@v0.1.0
go version -m "$1/smokescreen" | awk '$1 == "mod" {print $3}' >"$1/version"
