package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

const (
	backendRounds = 9
	reloadRounds  = 15
)

func backendNames() []string { return []string{"nftables", "xtables-legacy"} }

// measureBackends compares the packet filters: a start, a reload, the loading of
// rules and that of addresses, the last two against what is usual.
func measureBackends(b *bench) {
	b.startsByBackend()
	b.reloadsByBackend()
	b.loadsByBackend()
}

func (b *bench) boxOn(backend string) *lab.Box {
	return b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Files: allowlist(10), Caps: append(lab.DefaultCaps(), "NET_RAW"),
		Env: []string{"AGENT_INIT_BACKEND=" + backend}})
}

func (b *bench) startsByBackend() {
	bare := &starts{box: func() *lab.Box { return b.lab.NewBox(lab.BoxOptions{}) }}
	var kinds []*starts
	for _, name := range backendNames() {
		kinds = append(kinds, &starts{label: name, box: func() *lab.Box { return b.boxOn(name) }, args: []string{"agent-init", "run", "--log-level", "info", "--"}})
	}
	for range backendRounds {
		bare.add(b.timed(bare.box(), bare.args...))
		for _, k := range kinds {
			k.add(b.timed(k.box(), k.args...))
		}
	}
	shell := median(bare.took)
	r := b.report
	r.heading("Backends: a start, with 10 names")
	for _, k := range kinds {
		r.figure(k.label, ms(median(k.took)-shell), "").note("%s…%s; to the seal %s, rules %s", ms(slices.Min(k.took)-shell), ms(slices.Max(k.took)-shell),
			ms(median(k.steps["check the container"])+median(k.steps["seal the network"])), ms(median(k.steps["apply the rules"])))
	}
}

// reloadsByBackend times agent-init reload, with an address entry more or less
// each time, which replaces every rule.
func (b *bench) reloadsByBackend() {
	r := b.report
	r.heading("Backends: `agent-init reload` of a changed policy")
	for _, name := range backendNames() {
		box := b.boxOn(name)
		agent := box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--", "sleep", "infinity"}})
		if w := box.Exec(lab.Cmd{Args: []string{"agent-init", "wait"}}); w.Code != 0 {
			b.Fatalf("%s: %s\n%s", name, w, agent.Stderr())
		}
		var nothing, reload []time.Duration
		for i := range reloadRounds {
			list := allowlist(10)[0].Data
			if i%2 == 0 {
				list = append(list, "45.41.0.1:8443\n"...)
			}
			if err := box.WriteFile("/etc/agent-init/allowlist.txt", list, 0o644); err != nil {
				b.Fatalf("%v", err)
			}
			for _, x := range []struct {
				args []string
				into *[]time.Duration
			}{{[]string{"agent-init", "version"}, &nothing}, {[]string{"agent-init", "reload"}, &reload}} {
				begun := time.Now()
				if w := box.Exec(lab.Cmd{Args: x.args}); w.Code != 0 {
					b.Fatalf("%s: %s", name, w)
				}
				*x.into = append(*x.into, time.Since(begun))
			}
		}
		base := median(nothing)
		r.figure(name, ms(median(reload)-base), "").note("%s…%s", ms(slices.Min(reload)-base), ms(slices.Max(reload)-base))
		box.Kill()
	}
}

// loading is what a client measured of one way to load rules or addresses.
type loading struct {
	What  string
	Count int
	Took  []time.Duration
	Addrs bool // else rules
}

func (b *bench) loadsByBackend() {
	var out, errs bytes.Buffer
	cmd := exec.Command("/proc/self/exe", "-client", "loads")
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = os.Environ()
	err := b.lab.NewBox(lab.BoxOptions{}).Net.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	var loads []loading
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &loads)
	}
	if err != nil {
		b.Fatalf("load rules and addresses: %v: %s", err, errs.String())
	}
	r := b.report
	for _, addrs := range []bool{false, true} {
		if addrs {
			r.heading("Backends: addresses that are added, IPv4 with protocol and port, %s of them", thousands(manyLeases))
		} else {
			r.heading("Backends: the rules of a plan replaced, IPv4 and IPv6")
		}
		for _, l := range loads {
			if l.Addrs != addrs {
				continue
			}
			took := median(l.Took)
			f := r.figure(l.What, ms(took), "")
			if addrs {
				f.note("%s/s", thousands(int(float64(l.Count)/took.Seconds())))
				if l.What == "xtables: ipset, 1,000 in a message" {
					f.goal = "≤ 200 ms for 65,000"
					f.met(took <= 200*time.Millisecond)
				}
				continue
			}
			f.note("%d rules; %s…%s", l.Count, ms(slices.Min(l.Took)), ms(slices.Max(l.Took)))
		}
	}
}
