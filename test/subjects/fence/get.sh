#!/bin/sh
# Builds fence of Tusk's, from the Go proxy, into the directory $1.
set -eu
GOBIN=$1 CGO_ENABLED=0 GOFLAGS=-trimpath go install github.com/Use-Tusk/fence/cmd/fence@v0.1.5
go version -m "$1/fence" | awk '$1 == "mod" {print $3}' >"$1/version"
