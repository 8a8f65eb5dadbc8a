package keeper

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/route"
)

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
		filled := k.filling(r)
		for name, value := range r.Env {
			v := filled.Replace(value)
			if _, set := env[name]; !set || v != value {
				env[name] = v
			}
		}
	}
	k.trust.dress(env)
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
	err := k.writeFor(gid, state.BrokerFile, fill)
	if err == nil && given {
		return writeBeside(k.config.EnvFile, "--env-file", fill)
	}
	return err
}

// writeFor writes a file in the runtime directory that the agent's group may read, and nobody else.
func (b *base) writeFor(gid uint32, name string, fill func(io.Writer) error) (err error) {
	_ = os.Remove(filepath.Join(string(b.dir), name+".new")) // an older one may be another group's
	privdrop.FilesAs(-1, int(gid), func() { err = b.dir.WriteWith(name, 0o640, fill) })
	return err
}

// publishFiles writes those files of the routes that point programs to the broker which no variable does, and removes
// those of routes that are none any more. A sidecar's stand beside --env-file, where the agent's container has them.
func (k *brokerKeeper) publishFiles(gid uint32) error {
	if k == nil {
		return nil
	}
	files := k.filesOf(k.book.policy().Settings.Broker)
	for name, text := range files {
		fill := func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		}
		var err error
		if k.config.EnvFile == "" {
			err = k.writeFor(gid, name, fill)
		} else {
			err = writeBeside(filepath.Join(k.clientDir(), name), "beside --env-file", fill)
		}
		if err != nil {
			return err
		}
	}
	for name := range k.filed {
		if _, still := files[name]; !still {
			_ = os.Remove(filepath.Join(k.clientDir(), name))
		}
	}
	k.filed = files
	return nil
}

// filesOf are the files of routes, by their names.
func (k *brokerKeeper) filesOf(routes []route.Route) map[string]string {
	files := map[string]string{}
	for _, r := range routes {
		filled := k.filling(r)
		for _, f := range r.Files {
			_, begun := files[f.Name]
			switch {
			case begun && f.Head == "": // one that is whole in itself is the first route's, as variables are
				continue
			case !begun:
				files[f.Name] = filled.Replace(f.Head)
			}
			files[f.Name] += filled.Replace(f.Text)
		}
	}
	return files
}

// filling puts what is known by now into the variables and the files of a route.
func (k *brokerKeeper) filling(r route.Route) *strings.Replacer {
	host := ""
	if to, err := url.Parse(r.To); err == nil {
		host = to.Hostname()
	}
	return strings.NewReplacer("{base}", k.at(r.Name), "{token}", r.TokenPrefix+k.token, "{dir}", k.clientDir(), "{to}", r.To, "{host}", host)
}

// clientDir is where the agent finds the files of the routes.
func (k *brokerKeeper) clientDir() string {
	if k.config.EnvFile != "" {
		return filepath.Dir(k.config.EnvFile)
	}
	return string(k.dir)
}

// writeBeside writes --env-file, or a file beside it. Any user may read it, since nobody knows whose the agent in the
// container beside this one is.
func writeBeside(file, which string, fill func(io.Writer) error) error {
	if err := replace(file, 0o644, func(temp *os.File) error { return fill(temp) }); err != nil {
		return fault.New(fault.Usage, "mount a directory there that agent-init may write", "write %s: %w", which, err)
	}
	return nil
}

// replace writes a file where others may write, too: what they have put there is replaced, and not written to.
func replace(file string, mode os.FileMode, fill func(temp *os.File) error) error {
	temp, err := os.CreateTemp(filepath.Dir(file), ".agent-init-*")
	if err != nil {
		return err
	}
	err = fill(temp)
	if err = errors.Join(err, temp.Chmod(mode), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		os.Remove(temp.Name())
	}
	return err
}

// at is where the agent asks for a route.
func (k *brokerKeeper) at(name string) string {
	host := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), k.sockets.port)
	if len(k.sockets.at) > 0 {
		host = k.sockets.at[0]
	}
	return "http://" + host.String() + "/" + name
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
