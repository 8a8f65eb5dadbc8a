package main

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/keeper"
	"github.com/agent-init/agent-init/pkg/policy"
)

// given is a flag of which each use gives one more item, and a variable all of them.
type given struct {
	flag, variable string
	items          []string
	from           string // what has given them
}

func newGiven(flag string) given { return given{flag: flag, variable: fault.VariableOf(flag)} }

func (g *given) String() string { return strings.Join(g.items, ", ") }

// Set adds one item, as the flag gives it.
func (g *given) Set(s string) error { return g.take("--"+g.flag, s) }

// setVariable takes items with commas or line ends between them. An empty variable gives none. A line with a path is one
// item: methods and paths may have commas, and no part of a path is to be taken for a name.
func (g *given) setVariable(s string) error {
	for line := range strings.Lines(s) {
		items := []string{line}
		if !strings.Contains(line, " /") {
			items = strings.Split(line, ",")
		}
		for _, item := range items {
			if item = strings.TrimSpace(item); item != "" {
				if err := g.take(g.variable, item); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (g *given) take(from, item string) error {
	switch item = strings.TrimSpace(item); {
	case item == "" || strings.ContainsAny(item, "\r\n#"):
		return errors.New("give one entry each time, without a comment")
	case strings.HasPrefix(item, "!"):
		return errors.New("it allows; what is to be denied is written into a file of the policy")
	}
	g.from, g.items = from, append(g.items, item)
	return nil
}

// addTo puts into c what is given, as further files of the policy.
func (s *settings) addTo(c *keeper.Config) error {
	allow, inbound := policy.File{Name: s.allow.from}, policy.File{Name: s.inbound.from + ".yaml"}
	for _, entry := range s.allow.items {
		allow.Data = append(allow.Data, entry+"\n"...)
		c.GivenWords = append(c.GivenWords, "--allow "+entry)
	}
	for _, port := range s.inbound.items {
		c.GivenWords = append(c.GivenWords, "--inbound "+port)
	}
	if len(s.allow.items) > 0 {
		c.Given = append(c.Given, allow)
	}
	if len(s.inbound.items) > 0 {
		data, err := json.Marshal(map[string][]string{"inbound": s.inbound.items})
		if err != nil {
			return err
		}
		inbound.Data = data
		c.Given = append(c.Given, inbound)
	}
	for _, f := range c.Given {
		if _, err := policy.Parse(&policy.Bundle{Files: []policy.File{f}}, allowlist.Files); err != nil {
			return fault.New(fault.Usage, "correct what is given: an entry as in a policy file each, or a port",
				"%s", strings.ReplaceAll(err.Error(), s.inbound.from+".yaml:1:", s.inbound.from+":"))
		}
	}
	return nil
}
