package gate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// gateList allows ok.test, and not shared.test, which has the same addresses.
const gateList = "ok.test\nok2.test\nmany.test\n"

// unlisted is the policy's reason to refuse what no entry allows.
const unlisted = "not in the allowlist"

// gated is a confined box, and an open one in the same internet.
type gated struct {
	*rig.World
	open  *lab.Box
	fresh *addresses
}

// addresses of many.test that nothing was sent to yet: whatever leaves for one
// belongs to the test that took it, and so do the events in the log.
type addresses struct {
	mu   sync.Mutex
	left []netip.Addr
}

func gate(t *testing.T) *gated {
	t.Helper()
	l := rig.NewLab(t)
	all := rig.Many("45.30.60.1", 90)
	l.DNS.Set("many.test", lab.Answer{Addrs: all})
	w := rig.ConfineIn(t, l, gateList, lab.BoxOptions{Files: []lab.File{rig.Settings("limits:\n  addrs_per_name: 100\n")}})
	for _, name := range []string{"ok.test", "ok2.test", "many.test"} {
		w.Works("resolve", name)
	}
	return &gated{w, w.Open(lab.BoxOptions{}), &addresses{left: all}}
}

// of is g on the account of a subtest.
func (g *gated) of(t *testing.T) *gated { return &gated{rig.Sub(g.World, t), g.open, g.fresh} }

func (g *gated) next() netip.Addr {
	g.Helper()
	g.fresh.mu.Lock()
	defer g.fresh.mu.Unlock()
	if len(g.fresh.left) == 0 {
		g.Fatal("many.test has no address left")
	}
	a := g.fresh.left[0]
	g.fresh.left = g.fresh.left[1:]
	return a
}

// reset fails the test unless the client was told at once.
func reset(t *testing.T, p lab.Poke) {
	t.Helper()
	if p.Errno != unix.ErrnoName(unix.ECONNRESET) && p.Errno != unix.ErrnoName(unix.EPIPE) && !strings.Contains(p.Err, "access denied") {
		t.Errorf("neither reset nor told that access is denied: %s", p)
	}
}

// logged waits for the record of what the gate decided about an address.
func (g *gated) logged(kind, verdict string, a netip.Addr, name, reason string) rig.Event {
	g.Helper()
	return g.Audited(kind+" "+verdict+" "+a.String()+" "+name+" "+reason, func(e rig.Event) bool {
		return e.Kind == kind && e.Verdict == verdict && e.IP == a.String() && e.Name == name && strings.Contains(e.Reason, reason)
	})
}

// unheard tries in both boxes to send bytes to port 443 of an address of
// many.test, and to get an answer. That must work in the open box; in the other
// one the gate denies access or resets the connection, nothing leaves, and the log says why.
func (g *gated) unheard(send []byte, name, reason string, flags ...string) {
	g.Helper()
	a := g.next()
	p := g.Refused(g.open, rig.Toward(a.String()), g.bytes(rig.At(a, 443), send, flags...)...)
	reset(g.T, p)
	g.logged("connect", "deny", a, name, reason)
}

// heard is that the bytes arrive and are answered.
func (g *gated) heard(send []byte, flags ...string) lab.Poke {
	g.Helper()
	a := g.next()
	p := g.Works(g.bytes(rig.At(a, 443), send, flags...)...)
	if len(g.Box.Packets(rig.Toward(a.String()))) == 0 {
		g.Errorf("an answer, and nothing has left for %s", a)
	}
	return p
}

func (g *gated) bytes(to string, send []byte, flags ...string) []string {
	args := []string{"tcp"}
	for part := range slices.Chunk(send, 48<<10) { // an argument has 128 KiB
		args = append(args, "-hex", hex.EncodeToString(part))
	}
	return append(append(args, flags...), to)
}

// extension is one of a ClientHello.
type extension struct {
	kind uint16
	data []byte
}

const extensionECH = 0xfe0d // RFC 9849

// hello is a ClientHello of crypto/tls for a name, in one record; edit, if any,
// changes its extensions.
func hello(t *testing.T, name string, edit func([]extension) []extension) []byte {
	t.Helper()
	client, server := net.Pipe()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		client.Close()
	}()
	defer server.Close()
	head := make([]byte, 5)
	_, err := io.ReadFull(server, head)
	rig.Must(t, err)
	message := make([]byte, binary.BigEndian.Uint16(head[3:]))
	_, err = io.ReadFull(server, message)
	rig.Must(t, err)
	if edit == nil {
		return append(head, message...)
	}
	body := message[4:]
	n := 2 + 32                                     // version, random
	n += 1 + int(body[n])                           // session
	n += 2 + int(binary.BigEndian.Uint16(body[n:])) // suites
	n += 1 + int(body[n])                           // compression
	var list []extension
	for rest := body[n+2:]; len(rest) > 0; {
		size := binary.BigEndian.Uint16(rest[2:])
		list = append(list, extension{binary.BigEndian.Uint16(rest), rest[4 : 4+size]})
		rest = rest[4+size:]
	}
	var encoded []byte
	for _, e := range edit(list) {
		encoded = append(binary.BigEndian.AppendUint16(encoded, e.kind), vector16(e.data)...)
	}
	body = append(bytes.Clone(body[:n]), vector16(encoded)...)
	return record16(handshake1(body))
}

func vector16(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}

// handshake1 is a message of type ClientHello; record16 a record of it.
func handshake1(body []byte) []byte {
	return append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

func record16(message []byte) []byte { return append([]byte{22, 3, 1}, vector16(message)...) }

// without server_name, and with these extensions instead.
func serverName(instead ...extension) func([]extension) []extension {
	return func(list []extension) (out []extension) {
		for _, e := range list {
			if e.kind != 0 {
				out = append(out, e)
			}
		}
		return append(instead, out...)
	}
}

// names is a server_name extension (RFC 6066).
func names(names ...string) extension {
	var list []byte
	for _, n := range names {
		list = append(append(list, 0), vector16([]byte(n))...)
	}
	return extension{0, vector16(list)}
}

// zeroAddrPort leaves the choice of an address to the kernel.
var zeroAddrPort netip.AddrPort

// writePEM writes cert.pem and key.pem.
func writePEM(t *testing.T, dir string, cert *tls.Certificate) {
	t.Helper()
	var chain []byte
	for _, der := range cert.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(filepath.Join(dir, "cert.pem"), chain, 0o600))
	rig.Must(t, os.WriteFile(filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
}
