package dns

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestSharedHostsFileUnread: containers that share a network are given one /etc/hosts by
// their engine, as a pod is by a kubelet, and whoever is root in any of them writes it.
// The agent, root in its own and without a capability, says there that an allowed name
// is at its server.
func TestSharedHostsFileUnread(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	dir := t.TempDir()
	rig.Must(t, os.Chmod(dir, 0o755))
	file := filepath.Join(dir, "hosts")
	rig.Must(t, os.WriteFile(file, []byte("127.0.0.1 localhost\n"), 0o644))
	shared := []lab.Bind{{Source: file, Target: "/etc/hosts", Writable: true}}
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{Binds: shared}, "agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID))
	w.Mode = "sidecar"
	w.Other = l.NewBox(lab.BoxOptions{Share: w.Box, Caps: []string{}, NoNewPrivs: true, Binds: shared})
	w.Other.Idle()
	w.Ready()
	w.Box.ForgetPackets()
	const evil, evil6 = "45.31.58.1", "2a0f:31:58::1"
	lines := fmt.Sprintf("%s ok.test a.cdn.test\n%s ok.test\n", evil, evil6)
	if p := w.Other.Poke(0, "write", "-append", "-data", lines, "/etc/hosts"); !p.OK {
		t.Fatalf("proves nothing, the agent can't write it: %s", p)
	}
	reach := func(when string) {
		t.Helper()
		for _, to := range []string{evil + ":443", evil + ":80", "[" + evil6 + "]:443"} {
			w.Other.Poke(0, "http", "-insecure", "-timeout", "1s", "-addr", to, "-sni", "ok.test", "https://ok.test/")
		}
		if out := w.Box.Packets(lab.Routed, lab.ToAddr(evil)); len(out) > 0 {
			t.Errorf("%s: %d packets left, the first of them %s", when, len(out), out[0])
		}
		w.Sealed(lab.ToAddr(evil6))
	}
	// Files are looked at every second or so, and a change is taken over after two looks.
	for range 8 {
		reach("by itself")
		time.Sleep(time.Second)
	}
	if r := w.Root("agent-init", "reload"); r.Code != 0 {
		t.Errorf("reload: %s", r)
	}
	reach("after a reload")
	for _, name := range []string{"ok.test", "a.cdn.test"} {
		if p := w.Poke("dns", rig.At(lab.Upstream4, 53), name, "A"); fmt.Sprint(p.Detail["addrs"]) == "["+evil+"]" {
			t.Errorf("%s has the agent's address: %s", name, p)
		}
	}
}

// TestSharedMemoryHoldsNoState: the containers of a pod share /dev/shm too. On a read-only
// root without a mount at /run the state would be there, with the socket that asks
// only whether its caller is root.
func TestSharedMemoryHoldsNoState(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	start := func(tmpfs ...string) (w *rig.World, dir string) {
		dir = t.TempDir()
		rig.Must(t, os.Chmod(dir, 0o777|os.ModeSticky))
		shared := []lab.Bind{{Source: dir, Target: "/dev/shm", Writable: true}}
		w = rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{Binds: shared, ReadOnly: true, Tmpfs: tmpfs}, "agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID))
		w.Mode = "sidecar"
		w.Other = l.NewBox(lab.BoxOptions{Share: w.Box, Caps: []string{}, NoNewPrivs: true, Binds: shared})
		w.Other.Idle()
		return w, dir
	}
	reach := func(w *rig.World) {
		t.Helper()
		w.Other.Poke(0, "unix", "-esc", `{\"version\":1,\"verb\":\"allow\",\"target\":\"evil.test\",\"seconds\":3600}\n`, "/dev/shm/agent-init/control.sock")
		w.Other.Poke(0, "http", "-insecure", "-timeout", "2s", "https://evil.test/")
		evil4, evil6 := rig.Named("evil.test")
		w.Sealed(lab.ToAddr(evil4.String()))
		w.Sealed(lab.ToAddr(evil6.String()))
	}
	w, dir := start()
	if !rig.Eventually(lab.Patience, func() bool {
		_, err := os.Stat(filepath.Join(dir, "agent-init", "control.sock"))
		select {
		case <-w.Agent.Done():
			return true
		default:
			return err == nil
		}
	}) {
		t.Fatal("neither refused nor started")
	}
	reach(w)
	rig.Refused(t, w.Agent.Wait(lab.Patience), 71, "read-only", "mount a tmpfs at /run", "emptyDir")

	w, dir = start("/run:mode=755")
	w.Ready()
	w.Box.ForgetPackets()
	reach(w)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("in the shared memory is %v, %v", left, err)
	}
	w.Works("http", "https://ok.test/")
}
