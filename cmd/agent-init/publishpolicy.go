package main

import (
	"bufio"
	"encoding/json"
	"io"

	"github.com/agent-init/agent-init/pkg/policy"
)

// policyFile is the policy in force, for everyone to read: one rule per line, in
// JSON, without the settings, which may hold what the agent's own environment
// does.
const policyFile = "policy.jsonl"

// publishPolicy writes the policy, and what agents are told about it. It is
// called with reloading held.
func (k *keeper) publishPolicy(p *policy.Policy) {
	k.mu.Lock()
	head := publishedHead{Version: 1, Dir: k.config.dir, Hosts: k.bundle.Hosts, Inbound: inboundOf(p)}
	grants, monitor := k.grants.clone().list, k.state.Monitor
	k.mu.Unlock()
	if err := k.dir.writeWith(policyFile, 0o644, func(w io.Writer) error { return writeRules(w, head, p) }); err != nil {
		k.unpublished("the policy", err)
	}
	if err := k.dir.writeWith(readmeFile, 0o644, func(w io.Writer) error { return writeReadme(w, p, grants, monitor) }); err != nil {
		k.unpublished("what agents are told", err)
	}
}

// writeRules writes one rule at a time: the policy may be long.
func writeRules(w io.Writer, head publishedHead, p *policy.Policy) error {
	b := bufio.NewWriterSize(w, 64<<10)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(head)
	p.EachRule(func(r policy.ReportRule) {
		if err == nil {
			err = enc.Encode(publishedRule{Rule: r.Rule, Source: r.Source, Preset: r.Preset})
		}
	})
	if err == nil {
		err = b.Flush()
	}
	return err
}
