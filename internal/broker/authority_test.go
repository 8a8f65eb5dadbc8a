package broker

import (
	"crypto/x509"
	"errors"
	"testing"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/broker/authority"
	"github.com/agent-init/agent-init/pkg/route"
)

// TestCertify: the keeper hears what is to be trusted before it hears that the names are served, and only of what is new.
func TestCertify(t *testing.T) {
	p, ch := keeper(t, audit.Discard)
	close(p.begun)
	named := func(names ...string) (all []route.Inspected) {
		for _, n := range names {
			all = append(all, route.Inspected{Name: n, Port: 443}, route.Inspected{Name: n, Port: 8443})
		}
		return all
	}
	for _, c := range []struct {
		what    string
		names   []route.Inspected
		trusted int // certificates in the message, 0: there is none
	}{
		{"nothing inspected", nil, 0},
		{"without TLS", []route.Inspected{{Name: "plain.test", Port: 80, Plain: true}}, 0},
		{"a name on two ports", named("one.test"), 1},
		{"the same", named("one.test"), 0},
		{"one more", named("one.test", "two.test"), 2},
		{"one less", named("two.test"), 1},
		{"none", nil, 0},
	} {
		f, err := stage.BrokerLoad{Inspected: c.names}.File()
		if err != nil {
			t.Fatal(err)
		}
		err = ch.Send(wire.Message{Op: wire.OpCredentials, ID: 9}, f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		m, _, err := ch.Receive()
		if c.trusted > 0 {
			all, parted := wire.Parted(m.Text)
			if err != nil || m.Op != wire.OpTrust || parted != nil || len(all) != c.trusted {
				t.Fatalf("%s: %d certificates in %v, %v, %v", c.what, len(all), m.Op, err, parted)
			}
			for _, der := range all {
				if _, err := x509.ParseCertificate(der); err != nil {
					t.Errorf("%s: %v", c.what, err)
				}
			}
			m, _, err = ch.Receive()
		}
		if err != nil || m.Op != wire.OpCredentials || m.Err {
			t.Errorf("%s: %+v, %v", c.what, m, err)
		}
		for _, i := range c.names {
			if _, err := p.leaf(i.Name); (err == nil) == i.Plain {
				t.Errorf("%s: a certificate for %s: %v", c.what, i.Name, err)
			}
		}
	}
	if _, err := p.leaf("one.test"); !errors.Is(err, authority.ErrName) {
		t.Errorf("a name that is gone: %v", err)
	}
}
