package gateway

import (
	"io"
	"testing"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// refusesECH is a policy that allows ok.test, and no Encrypted ClientHello.
func refusesECH(t *testing.T) *policy.Policy {
	t.Helper()
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte("domains: [ok.test]\ntls: {ech: refuse}\n")}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func withExtension(kind uint16) string {
	return string(records(handshake([]byte{byte(kind >> 8), byte(kind), 0, 4, 0, 1, 2, 3}, sni(entry(0, "ok.test"))), 1<<14))
}

// X57: where the policy says so, no hello passes that may have another name inside.
func TestX57EncryptedHello(t *testing.T) {
	for _, kind := range []uint16{extensionECH, extensionECHDraft, extensionECHDraft + 2, extensionESNI} {
		r := newRig(t, nil)
		r.policy.Store(refusesECH(t))
		r.denied(siteTLS, withExtension(kind))
		wantReason(t, r.event(audit.Connect, 0), audit.Deny, "encrypted client hello, which the policy refuses")
	}
	r := newRig(t, nil)
	r.policy.Store(refusesECH(t))
	r.serves(withExtension(0xfe0e), string(helloFor("ok.test")))
	r.policy.Store(parsePolicy(t, "ok.test"))
	r.serves(withExtension(extensionECH))

	monitor := newRig(t, func(c *settings) { c.Monitor = true })
	monitor.policy.Store(refusesECH(t))
	monitor.serves(withExtension(extensionECH))
	if e := monitor.event(audit.Connect, 0); e.Enforce != audit.Deny {
		t.Errorf("monitor mode does not say what it let through: %+v", e)
	}
}

// What is open when the policy begins to refuse is cut off, and nothing else.
func TestX57Recheck(t *testing.T) {
	r := newRig(t, nil)
	hidden, hiddenServer := r.pairBy([]byte(withExtension(extensionECH)))
	plain, plainServer := r.pair("ok.test")
	r.policy.Store(refusesECH(t))
	r.Recheck()
	wantReset(t, hidden)
	wantReset(t, hiddenServer)
	io.WriteString(plain, "x")
	if _, err := plainServer.Read(make([]byte, 1)); err != nil {
		t.Errorf("another connection noticed: %v", err)
	}
}

// serves fails the test unless the server gets each hello.
func (r *rig) serves(hellos ...string) {
	r.t.Helper()
	for _, h := range hellos {
		client, server := r.pairBy([]byte(h))
		server.Close()
		client.Close()
	}
}
