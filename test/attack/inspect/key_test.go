package inspect

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestInspectedKeys: the keys of the authority are in the broker's memory, where root finds them by what they open. The
// agent finds them nowhere, and no other process of agent-init has them.
func TestInspectedKeys(t *testing.T) {
	w := rig.LookedInto(t, inspectedList, lab.BoxOptions{Env: []string{"AGENT_INIT_SESSION=always"}})
	if !w.Program("/usr/bin/openssl") {
		return
	}
	w.InSession() // whose server is one more that has none
	shown := told(w, `openssl s_client -showcerts -connect api.test:443 -servername api.test </dev/null 2>/dev/null`).Stdout
	public := map[string]string{}
	for block, rest := pem.Decode([]byte(shown)); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		rig.Must(t, err)
		point, err := c.PublicKey.(*ecdsa.PublicKey).Bytes()
		rig.Must(t, err)
		public[string(point)] = c.Subject.String()
	}
	if len(public) != 2 {
		t.Fatalf("the broker shows %d keys: %s", len(public), shown)
	}
	var secrets [][]byte
	var hunted []string
	for _, p := range rig.Inmates(t, w.Agent) {
		if !strings.HasSuffix(p.Args, " broker") {
			continue
		}
		rig.EachArea(t, p, func(area []byte) { secrets = append(secrets, keysIn(area, public)...) })
	}
	if len(secrets) < 2 {
		t.Fatalf("root finds %d keys in the broker, so nobody else would find any", len(secrets))
	}
	for _, s := range slices.Clone(secrets) {
		other := slices.Clone(s)
		slices.Reverse(other)
		secrets = append(secrets, other) // as big and as little endian
	}
	for _, s := range secrets {
		hunted = append(hunted, hex.EncodeToString(s)) // the hunter turns them round
	}
	for _, p := range rig.Inmates(t, w.Agent) {
		if strings.HasSuffix(p.Args, " broker") {
			continue
		}
		rig.EachArea(t, p, func(area []byte) {
			if slices.ContainsFunc(secrets, func(s []byte) bool { return bytes.Contains(area, s) }) {
				t.Errorf("%s has a key in its memory", p.Args)
			}
		})
	}
	for _, where := range []struct{ in, n string }{{"files", "20000"}, {"environ,memory", "100000"}} {
		r := w.Launch(append([]string{"poke", "hunt", "-in", where.in, "-n", where.n}, hunted...)...).Wait(0)
		found, err := lab.ParsePoke(r.Stdout)
		if err != nil || found.OK || !strings.Contains(found.Err, "not found in ") {
			t.Errorf("%s: %s", where.in, r)
		}
		t.Logf("%s: %s", where.in, found.Err)
	}
}

// keysIn are the private keys of these public ones that an area has, in either order of bytes. A key looks like chance:
// most of memory does not, and is passed over.
func keysIn(area []byte, public map[string]string) (found [][]byte) {
	seen := map[[32]byte]bool{}
	for at := 0; at+32 <= len(area); at += 8 {
		s := [32]byte(area[at : at+32])
		if !random(s[:]) || seen[s] {
			continue
		}
		seen[s] = true
		for range 2 {
			if key, err := ecdh.P256().NewPrivateKey(s[:]); err == nil && public[string(key.PublicKey().Bytes())] != "" {
				found = append(found, slices.Clone(s[:]))
			}
			slices.Reverse(s[:])
		}
	}
	return found
}

// random says whether 32 bytes may be: those that are have some thirty different ones, and words without zeros in
// front.
func random(b []byte) bool {
	var has [256]bool
	different, text := 0, true
	for _, c := range b {
		if !has[c] {
			has[c] = true
			different++
		}
		text = text && c < 0x80
	}
	for word := range slices.Chunk(b, 8) {
		if binary.LittleEndian.Uint64(word)>>40 == 0 {
			return false // a number, or an address
		}
	}
	return different >= 22 && !text
}
