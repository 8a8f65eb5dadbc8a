package state

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// WriteRules writes the policy in force and what it is below, for everyone to read: one rule per line, in JSON, without the settings, which may
// hold what the agent's own environment does. The routes of the broker, which hold no secret, are in the first line. It
// writes one rule at a time: the policy may be long.
func WriteRules(w io.Writer, dir string, hosts []byte, p *policy.Policy) error {
	b := bufio.NewWriterSize(w, 64<<10)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(publishedHead{1, dir, hosts, policy.Resolv{Search: p.Resolv.Search, Ndots: p.Resolv.Ndots}, Inbound(p), p.RouteEntries(), p.Settings.UpstreamProxy, p.Below()})
	for _, r := range p.Written() {
		if err == nil {
			err = enc.Encode(r.Entry())
		}
	}
	if err == nil {
		err = b.Flush()
	}
	return err
}

// publishedHead is the first line of policy.jsonl.
type publishedHead struct {
	Version int    `json:"version"`
	Dir     string `json:"dir"`             // where the files are
	Hosts   []byte `json:"hosts,omitempty"` // the hosts file that counts

	Resolv  policy.Resolv       `json:"resolv,omitzero"`   // how short names are searched for
	Inbound []uint16            `json:"inbound,omitempty"` // TCP ports that may be connected to from outside
	Routes  []policy.RouteEntry `json:"routes,omitempty"`  // of the broker
	Proxy   route.Proxy         `json:"proxy,omitzero"`    // by which it and the gate go out
	Ceiling *policy.Below       `json:"ceiling,omitempty"` // what the rules, which are as written, are below
}

// Inbound are the TCP ports that p lets in.
func Inbound(p *policy.Policy) (ports []uint16) {
	for _, in := range p.Settings.Inbound {
		if in.Proto == policy.TCP {
			ports = append(ports, in.Number)
		}
	}
	return ports
}

// ReadRules reads policy.jsonl.
func ReadRules(path string) (*policy.Policy, string, []uint16, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", nil, err
	}
	defer f.Close()
	d := json.NewDecoder(bufio.NewReaderSize(f, 64<<10))
	var head publishedHead
	if err := d.Decode(&head); err != nil {
		return nil, "", nil, fmt.Errorf("read %s: %w", path, text.CauseOf(err))
	}
	var rules []policy.Entry
	for err == nil {
		var r policy.Entry
		if err = d.Decode(&r); err == nil {
			rules = append(rules, r)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, "", nil, fmt.Errorf("read %s: %w", path, text.CauseOf(err))
	}
	p, err := policy.Rebuild(rules, head.Hosts, head.Resolv, head.Routes, head.Proxy, head.Ceiling)
	return p, head.Dir, head.Inbound, err
}
