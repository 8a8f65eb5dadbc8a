// Package container tests the images with a real container engine: what a person gets from "docker
// run", with the real Claude Code in it.
//
// The engine is the private one that test/engine.sh starts. It lives in a network namespace without
// an uplink, in which this package puts a small internet: every address there is, IPv4 and IPv6, is
// the test's own, with DNS on 53, TLS on 443 with the test's own authority, and an LLM endpoint behind
// api.anthropic.com. So the tests can try to reach the real addresses of the world, a try that gets
// through is seen on the far side, and none ever leaves the machine.
//
// To run them, as root:
//
//	eval "$(test/engine.sh)" && export DOCKER_HOST
//	AGENT_INIT_IMAGE=agent-base AGENT_INIT_CLAUDE_IMAGE=agent-claude go test ./test/container
//
// Without an engine and images they are skipped; with AGENT_INIT_MUST_RUN=1 they fail instead.
package container
