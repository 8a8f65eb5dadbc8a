package keeper

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/route"
)

// routesOf are the routes of p as people see them, with the counts of those that there were before.
func routesOf(p *policy.Policy, c *credentials, before []state.Route) (out []state.Route) {
	counted := func(name string) state.Route {
		if i := slices.IndexFunc(before, func(r state.Route) bool { return r.Name == name }); i >= 0 {
			return before[i]
		}
		return state.Route{Name: name}
	}
	for _, r := range p.Settings.Broker {
		s, held := counted(r.Name), c.of(r)
		s.Present, s.Why, s.To, s.Source, s.Fault = true, "", r.To, held.source, held.fault
		s.Fingerprint, s.ByName = route.Fingerprint(held.secret), false
		if r.Keyless {
			s.Source = "none"
		}
		out = append(out, s)
	}
	for _, name := range p.AbsentRoutes {
		s := counted(name)
		s.Present, s.Why, s.To, s.Source, s.Fault, s.Fingerprint = false, c.absence(name), c.leadsTo(name), "", "", ""
		if u, err := url.Parse(s.To); err == nil {
			s.ByName = len(p.Ports(u.Hostname())) > 0
		}
		out = append(out, s)
	}
	return out
}

// publishRoutes has the status know the routes in force.
func (b *book) publishRoutes() {
	p := b.policy()
	b.update(func(s *state.State) { s.Broker.Routes = routesOf(p, b.credentials, s.Broker.Routes) })
}

// count has the status know what a request has come to. What the broker says of it is neither trusted nor unlimited.
func (k *brokerKeeper) count(m wire.Message) {
	k.update(func(s *state.State) {
		i := slices.IndexFunc(s.Broker.Routes, func(r state.Route) bool { return r.Name == m.Name })
		if i < 0 {
			return
		}
		s.Broker.Routes = slices.Clone(s.Broker.Routes) // who has a copy of the state reads the old one
		r := &s.Broker.Routes[i]
		if m.Flag == wire.SpentRefused {
			r.Refusals++
		} else {
			r.Requests++
		}
		r.TokensIn += min(m.Arg, math.MaxUint64-r.TokensIn)
		r.TokensOut += min(uint64(max(0, m.Value)), math.MaxUint64-r.TokensOut)
		if m.Text != "" {
			r.LastError = wire.PlainText(m.Text)
		}
	})
}

// dress makes an environment that of an agent which asks the broker: without the credentials of the routes, and with what
// points its clients to them. What an image or a person has set stays, but for what says where and by which key.
func (k *brokerKeeper) dress(env map[string]string) {
	if k == nil {
		return
	}
	routes := k.book.policy().Settings.Broker
	for _, name := range variables(routes) {
		delete(env, name)
	}
	for _, r := range routes {
		filled := strings.NewReplacer("{base}", k.at(r.Name), "{token}", r.TokenPrefix+k.token)
		for name, value := range r.Env {
			v := filled.Replace(value)
			if _, set := env[name]; !set || v != value {
				env[name] = v
			}
		}
	}
}

// publishVariables writes what dress sets, where somebody else starts the agent. It is for the agent's group to read: who
// has the token may ask the broker.
func (k *brokerKeeper) publishVariables(gid uint32) error {
	given := k != nil && k.config.EnvFile != ""
	if k == nil || k.mode == "run" && !given {
		return nil
	}
	env := map[string]string{}
	k.dress(env)
	fill := func(w io.Writer) error {
		for _, name := range slices.Sorted(maps.Keys(env)) {
			quoted := strings.ReplaceAll(env[name], "'", `'\''`)
			if _, err := fmt.Fprintf(w, "export %s='%s'\n", name, quoted); err != nil {
				return err
			}
		}
		return nil
	}
	_ = os.Remove(filepath.Join(string(k.dir), state.BrokerFile+".new")) // an older one may be another group's
	var err error
	privdrop.FilesAs(-1, int(gid), func() { err = k.dir.WriteWith(state.BrokerFile, 0o640, fill) })
	if err == nil && given {
		if err = replace(k.config.EnvFile, fill); err != nil {
			return fault.New(fault.Usage, "mount a directory there that agent-init may write", "write --env-file: %w", err)
		}
	}
	return err
}

// replace writes a file in a directory that others may write, too: what they have put there is replaced, and not written
// to. Any user may read it, since nobody knows whose the agent in the container beside this one is.
func replace(file string, fill func(io.Writer) error) error {
	temp, err := os.CreateTemp(filepath.Dir(file), ".agent-init-*")
	if err != nil {
		return err
	}
	err = fill(temp)
	if err = errors.Join(err, temp.Chmod(0o644), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		os.Remove(temp.Name())
	}
	return err
}

// at is where the agent asks for a route.
func (k *brokerKeeper) at(name string) string {
	return "http://127.0.0.1:" + strconv.Itoa(int(k.sockets.port)) + "/" + name
}

// variables are those that a credential of the routes may be in, also by another route's sources: the agent has none.
func variables(routes []route.Route) (names []string) {
	for _, r := range routes {
		usual, _ := route.Builtin(r.Name)
		for _, s := range slices.Concat(r.Credential, usual.Credential) {
			if s.Env != "" {
				names = append(names, s.Env)
			}
		}
	}
	return names
}
