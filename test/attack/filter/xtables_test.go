package filter

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// withRaw are the capabilities that the xtables backend needs.
func withRaw() []string { return append(lab.DefaultCaps(), "NET_RAW") }

// TestXtablesRefusals: what the backend lacks is named, with the remedy.
func TestXtablesRefusals(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	for name, c := range map[string]struct {
		opts    lab.BoxOptions
		backend string
		code    int
		says    []string
	}{
		"no NET_RAW":          {backend: "xtables", code: 77, says: []string{"NET_RAW", "--cap-add=NET_RAW"}},
		"no iptables":         {opts: lab.BoxOptions{Caps: withRaw(), Tmpfs: []string{"/usr/sbin"}}, backend: "xtables", code: 71, says: []string{"iptables-legacy-restore", "package iptables"}},
		"the other variant":   {opts: lab.BoxOptions{Caps: withRaw(), Tmpfs: []string{"/usr/sbin"}, Files: nftAlone()}, backend: "xtables", code: 71, says: []string{"is not of iptables-legacy", "(nf_tables)"}},
		"of an earlier one":   {opts: lab.BoxOptions{Caps: withRaw()}, backend: "xtables-nft", code: 64, says: []string{"--backend \"xtables-nft\" is not known", "use one of: auto nftables xtables xtables-legacy"}},
		"anybody's iptables":  {opts: lab.BoxOptions{Caps: withRaw(), Files: []lab.File{{Path: "/usr/sbin/iptables-legacy-restore", Data: []byte("#!/bin/sh\n"), Mode: 0o777}}}, backend: "xtables-legacy", code: 71, says: []string{"iptables-legacy-restore", "written by others"}},
		"the agent's program": {opts: lab.BoxOptions{Caps: withRaw(), Files: []lab.File{{Path: "/usr/sbin/ip6tables-legacy-save", Data: []byte("#!/bin/sh\n"), Mode: 0o755, UID: lab.AgentUID}}}, backend: "xtables", code: 71, says: []string{"written by others"}},
		"another program":     {opts: lab.BoxOptions{Caps: withRaw(), Files: []lab.File{{Path: "/usr/sbin/iptables-legacy-restore", Data: []byte("#!/bin/sh\necho iptables-restore v1.8.9 '(legacy)'\ncat >/dev/null\n"), Mode: 0o755}}}, backend: "xtables-legacy", code: 71, says: []string{"there"}},
	} {
		t.Run(name, func(t *testing.T) {
			bind, cmd, ran := rig.Canary(t)
			c.opts.Binary = lab.Binary(t)
			c.opts.Binds = append(c.opts.Binds, bind)
			c.opts.Files = append(c.opts.Files, lab.File{Path: "/etc/agent-init/allowlist.txt", Data: []byte("ok.test\n")})
			box := l.NewBox(c.opts)
			r := box.Run(lab.Cmd{Args: append([]string{"agent-init", "run", "--backend", c.backend, "--"}, cmd...)})
			rig.Refused(t, r, c.code, c.says...)
			if ran() {
				t.Error("the agent ran")
			}
		})
	}
}

// nftAlone are the programs of an image that has iptables on nf_tables alone.
func nftAlone() (files []lab.File) {
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, what := range []string{"-restore", "-save"} {
			files = append(files, lab.File{Path: "/usr/sbin/" + name + what, Mode: 0o755, Data: []byte("#!/bin/sh\necho " + name + what + " v1.8.9 '(nf_tables)'\n")})
		}
	}
	return files
}

// TestXtablesEngine: on a user-defined network the engine's rules may be of either variant; the root may be
// read-only; and the status says what is in use, why, and what it does less strictly.
func TestXtablesEngine(t *testing.T) {
	for _, v := range []string{"nft", "legacy"} {
		t.Run(v, func(t *testing.T) {
			lab.Require(t)
			l := lab.New(t, lab.Options{})
			w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{Caps: withRaw(), ReadOnly: true, NoNewPrivs: true, DockerDNS: true, DockerVia: v},
				"agent-init", "run", "--backend", "xtables", "--", "sleep", "infinity")
			w.Ready()
			w.Works("http", "https://ok.test/")
			w.Blocked("tcp", "1.1.1.1:443")
			w.Blocked("resolve", "evil.test")
			w.Sealed(lab.ToAddr("1.1.1.1"))
			s, code := w.Status()
			fw, _ := s["firewall"].(map[string]any)
			if code != 0 || fw["backend"] != "xtables-legacy" || fw["caveats"] == nil {
				t.Errorf("the status (%d) says of the rules: %v; %v", code, fw, s["why"])
			}
			r := w.Root("agent-init", "status")
			for _, text := range []string{"xtables-legacy", "it was asked for", "weaker: "} {
				if !strings.Contains(r.Stdout, text) {
					t.Errorf("the status does not say %q: %s", text, r)
				}
			}
		})
	}
}

// TestXtablesSwitch: the network namespace may outlive the processes; a start
// with another backend leaves nothing of the one before, and opens nothing.
func TestXtablesSwitch(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{Caps: withRaw()}, "sleep", "infinity")
	for _, b := range []string{"nftables", "xtables-legacy", "nftables", "xtables"} {
		w.Box.Kill()
		w.Agent = w.Box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--backend", b, "--", "sleep", "infinity"}})
		w.Ready()
		w.Works("http", "https://ok.test/")
		w.Blocked("tcp", "1.1.1.1:443")
		s, _ := w.Status()
		fw, _ := s["firewall"].(map[string]any)
		now := fmt.Sprint(fw["backend"])
		if !strings.HasPrefix(now, b) {
			t.Errorf("--backend %s: %v", b, fw)
		}
		rig.Must(t, w.Box.Net.Do(func() error {
			for backend, list := range map[string][]string{
				"nftables": {"nft", "list", "tables", "inet"}, "xtables-legacy": {"ip6tables-legacy-save"}, "xtables": {"ipset", "list", "-n"},
			} {
				out, err := rig.Program(list[0], list[1:]...)
				if err != nil {
					return err
				}
				if ours := strings.Contains(out, "agent-init"); ours != (now == backend || backend == "xtables" && now != "nftables") {
					t.Errorf("with %s, %v says:\n%s", now, list, out)
				}
			}
			return nil
		}))
	}
	w.Sealed(lab.ToAddr("1.1.1.1"))
}
