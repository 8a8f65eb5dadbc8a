package keeper

import (
	"fmt"
	"hash/fnv"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/upstream"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// A DNS server at an address of this network namespace is whoever has its port, and that may be the agent. Such servers
// are not taken from resolv.conf, and from the policy only with the word local; then the rules refuse what the agent
// sends as one (pkg/firewall/answers.go). The engine's own, at 127.0.0.11, is taken: in run and up the same rules know
// the agent by its uid, and in a sidecar, where it may have any, the guard believes the sockets of the start.

// servers are those that the guard may ask, if the policy names no others.
type servers struct {
	*base
	file     string // resolv.conf
	reduced  bool
	engine   []sockowner.Bound // in a sidecar: the sockets of the engine's DNS server
	noEngine string            // why that is not asked, "" if it is
	first    *policy.Resolv    // in a sidecar: what the file said before the agent could write it
	strayed  bool              // in a sidecar: it has said something else since
}

// findServers finds the engine's DNS server while nothing of the agent's runs.
func (b *base) findServers(reduced bool) *servers {
	s := &servers{base: b, file: upstream.File, reduced: reduced}
	switch {
	case reduced:
		s.noEngine = "inside gVisor the engine's server can't be reached"
	case b.shared():
		var err error
		if s.engine, err = upstream.SocketsOfEngine(); err != nil {
			s.noEngine = err.Error()
		}
	}
	return s
}

// watched is the file, if what it says may count.
func (s *servers) watched() string {
	if s.strayed {
		return ""
	}
	return s.file
}

// read reads resolv.conf, and takes out what is not to be asked. In a sidecar's network the agent's container has the same
// file, and may be root there: what it said first counts, and whoever changes it is heard of once. One change of the
// policy at a time calls it.
func (s *servers) read() policy.Resolv {
	if s.mode != "sidecar" {
		return s.look()
	}
	if s.first == nil {
		s.first = new(s.look())
	}
	out := *s.first
	if s.strayed = s.strayed || !s.look().Equal(out); s.strayed {
		out.PassedOver = append(slices.Clone(out.PassedOver), "what "+s.file+" says since the start, which the agent may have written: "+
			"start this container again to have it followed, or name the servers in dns.upstream")
	}
	return out
}

func (s *servers) look() policy.Resolv {
	r := upstream.Read(s.file)
	own, err := upstream.LocalAddrs()
	if err != nil { // the rules refuse these too
		s.log.Warn("servers of resolv.conf are not compared with this container's addresses", "error", err)
	}
	upstream.PassOver(&r, own, s.noEngine)
	return r
}

// publishServers tells who is asked by the policy in force.
func (b *base) publishServers(p *policy.Policy) {
	was := b.status()
	if now := p.Resolv; !slices.Equal(was.Guard.PassedOver, now.PassedOver) || was.DNS.Fault != now.Fault {
		for _, why := range append(slices.Clone(now.PassedOver), now.Fault) {
			if why != "" {
				b.log.Warn("a DNS server of resolv.conf is not asked", "why", why)
			}
		}
	}
	ups, _ := upstream.Of(p) // which has been read
	next := state.DNS{Servers: []string{}, Fault: p.Resolv.Fault, Needed: p.Unresolvable() != nil}
	for _, u := range ups {
		next.Servers = append(next.Servers, u.String())
	}
	b.update(func(s *state.State) {
		if slices.Equal(s.DNS.Servers, next.Servers) { // what is known of them stays
			was := s.DNS
			was.Fault, was.Needed = next.Fault, next.Needed
			next = was
		}
		s.Guard.PassedOver, s.DNS = p.Resolv.PassedOver, next
	})
}

// serverRemedy says where servers are named.
const serverRemedy = "name a server outside of the container: docker: --dns; compose: dns; kubernetes: dnsPolicy and dnsConfig; or dns.upstream in policy.yaml"

// askable says why nobody could be asked for a name that p allows: a start would be for nothing then. While the agent
// runs, the status says it, and a policy that takes something away is not held back.
func askable(p *policy.Policy) error {
	r := p.Unresolvable()
	ups, err := upstream.Of(p)
	switch {
	case err != nil || len(ups) > 0 || r == nil:
		return err
	case p.Resolv.Fault != "":
		return fault.New(fault.Policy, serverRemedy, "there is no DNS server to ask for %s (%v): %s", r.Target(), r.Source, p.Resolv.Fault)
	case len(p.Resolv.PassedOver) > 0:
		return fault.New(fault.Policy, serverRemedy, "no DNS server of %s is asked, for %s (%v): %s", upstream.File, r.Target(), r.Source, strings.Join(p.Resolv.PassedOver, "; "))
	}
	return fault.New(fault.Policy, serverRemedy, "there is no DNS server to ask for %s (%v): neither %s nor dns.upstream names one", r.Target(), r.Source, upstream.File)
}

// judge says what is wrong with the servers that the policy names.
func (s *servers) judge(p *policy.Policy) error {
	own, err := upstream.LocalAddrs()
	if err != nil {
		s.log.Warn("dns.upstream is not compared with this container's addresses", "error", err)
	}
	for _, text := range p.Settings.DNS.Upstream {
		u, err := policy.ParseUpstream(text)
		if err != nil {
			return fault.New(fault.Policy, "correct dns.upstream in policy.yaml", "dns.upstream: %w", err)
		}
		a := u.Addr.Addr()
		switch {
		case u.Local && s.shared():
			return fault.New(fault.Policy, "name a server outside of the pod in dns.upstream, or use agent-init run",
				"dns.upstream: %s: in a shared network, the agent could answer in the server's place", text)
		case u.Local && s.reduced:
			return fault.New(fault.Policy, "name a server outside of the container in dns.upstream, or use another runtime",
				"dns.upstream: %s: inside gVisor a server of the container itself can't be told from the agent", text)
		case a == policy.EngineDNS() && s.shared() && len(s.engine) == 0:
			_, err := upstream.SocketsOfEngine()
			return fault.New(fault.Policy, "name a server outside of the container in dns.upstream", "dns.upstream: %s: %w", text, err)
		case own[a] && !a.IsLoopback() && !u.Local:
			return fault.New(fault.Policy, "if your own server listens there as another user than the agent, write the word local behind it",
				"dns.upstream: %s is an address of this container, where the agent can listen too", text)
		}
	}
	return nil
}

// here are the servers that a person vouches for.
func here(p *policy.Policy) []netip.AddrPort {
	var out []netip.AddrPort
	for _, text := range p.Settings.DNS.Upstream {
		if u, err := policy.ParseUpstream(text); err == nil && u.Local {
			out = append(out, u.Addr)
		}
	}
	return out
}

// The policy's files are looked at by the clock: a notification (inotify(7)) is about an inode, and what is mounted,
// bind-mounted or swapped by a symbolic link under the same path, as volumes of Kubernetes are, is another one.

// filesState is a digest of all that tells one version of the policy's files, and of more, from
// another, behind every link: inode, size, times, mode and owner.
func filesState(dir, ceiling string, more ...string) uint64 {
	h := fnv.New64a()
	look := func(path string) {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			fmt.Fprintln(h, path, err)
			return
		}
		fmt.Fprintln(h, path, st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim, st.Mode, st.Uid, st.Gid)
	}
	look(filepath.Join(dir, "policy.yaml"))
	look(filepath.Join(dir, "allowlist.txt"))
	for _, path := range more {
		if path != "" {
			look(path)
		}
	}
	look(filepath.Join(ceiling, "ceiling.pub"))
	lists := []string{filepath.Join(dir, "allowlist.d"), filepath.Join(ceiling, "ceiling.d"), filepath.Join(dir, "phases")}
	for _, list := range append(lists, filepath.Join(dir, "phases", policy.Setup), filepath.Join(dir, "phases", policy.Verify)) {
		// The order is the file system's, and stays while nothing changes.
		for _, name := range entriesIn(list, h) {
			look(filepath.Join(list, name))
		}
	}
	return h.Sum64()
}

func entriesIn(dir string, h io.Writer) []string {
	d, err := os.Open(dir)
	if err != nil {
		fmt.Fprintln(h, "no directory", dir)
		return nil
	}
	defer d.Close()
	names, err := d.Readdirnames(2000) // at the most
	if err != nil && err != io.EOF {
		fmt.Fprintln(h, err)
	}
	return names
}

// watched decides when changed files are read.
type watched struct {
	loaded uint64 // what was read last, well or not
	seen   uint64 // at the last look
}

// due says whether the files have changed since they were read, and then stayed
// the same for one look: a file that is being written is not read half-way.
func (w *watched) due(now uint64) bool {
	settled := now == w.seen
	w.seen = now
	return settled && now != w.loaded
}

// filesState is that of the files that readFiles reads.
func (b *base) filesState(more ...string) uint64 {
	return filesState(b.config.PolicyDir, state.CeilingHome, append(more, b.config.SavedFile, container.HostsFile(b.mode))...)
}

// filesState is that of base, with the DNS servers.
func (b *book) filesState() uint64 { return b.base.filesState(b.servers.watched()) }

// readFiles reads the files of the policy, and the hosts file where it counts. What the command line gives is behind them.
func (b *base) readFiles() (*policy.Bundle, error) {
	files, err := policy.Read(policy.ReadOptions{Dir: b.config.PolicyDir, HostsFile: container.HostsFile(b.mode), SavedFile: b.config.SavedFile,
		Ceiling: state.CeilingHome, SeenFile: b.config.SeenFile})
	if err != nil {
		return files, err // which has the ceiling, perhaps
	}
	files.Files = append(files.Files, b.config.Given...)
	return files, nil
}

// readFiles is that of base, in the phase that is in force, with the DNS servers that there are.
func (b *book) readFiles() (*policy.Bundle, error) {
	files, err := b.base.readFiles()
	if err != nil {
		return files, err
	}
	files.Resolv = b.servers.read()
	if files.Phase = b.begun; b.files != nil {
		files.Phase = b.files.Phase
	}
	return files, nil
}
