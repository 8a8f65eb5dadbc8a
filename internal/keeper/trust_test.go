package keeper

import (
	"bytes"
	"crypto/sha1"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

func encoded(certificates ...string) (out string) {
	for _, c := range certificates {
		out += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(c)}))
	}
	return out
}

// TestTrust: programs are led to what they trusted before, and the authority besides. A key beside it is not written.
func TestTrust(t *testing.T) {
	dir := t.TempDir()
	p := &policy.Policy{}
	p.Settings.Inspected = []route.Inspected{{Name: "api.test", Port: 443}}
	k := &brokerKeeper{book: newBook(nil, p), roots: newRoots(nil), sockets: &brokerSockets{}}
	k.base = &base{publisher: &publisher{dir: state.Dir(dir)}, config: Config{Environ: map[string]string{"JAVA_TOOL_OPTIONS": "-Xmx1g"}}}
	k.roots.pem = []byte(encoded("image") + "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n")
	k.trust = newTrust(k)
	k.trust.named = func() map[string][][]byte { return map[string][][]byte{"NODE_EXTRA_CA_CERTS": {[]byte("corporate")}} }
	if err := k.trust.write(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("there are %v without an authority", left)
	}
	if err := k.trust.take(wire.Message{Text: wire.Pieces([]byte("ours"), []byte("ours before"))}); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"PATH": "/bin", "SSL_CERT_FILE": "/elsewhere", "NODE_EXTRA_CA_CERTS": "/corporate.pem"}
	k.dress(env)
	read := func(variable string) string {
		t.Helper()
		path := env[variable]
		data, err := os.ReadFile(path)
		if err != nil {
			t.Error(variable, err)
			return ""
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o644 || filepath.Dir(path) != dir {
			t.Errorf("%s: %s %v, %v", variable, path, st.Mode(), err)
		}
		return string(data)
	}
	for _, variable := range trustVariables {
		if got := read(variable); got != encoded("image", "ours", "ours before") {
			t.Errorf("%s leads to %q", variable, got)
		}
	}
	if got := read("NODE_EXTRA_CA_CERTS"); got != encoded("corporate", "ours", "ours before") {
		t.Errorf("what was named before, and the authority: %q", got)
	}
	if got := read("DENO_CERT"); got != encoded("ours", "ours before") {
		t.Errorf("the authority alone: %q", got)
	}
	if got := read("SYSTEM_WGETRC"); !strings.HasSuffix(got, "\nca_certificate = "+dir+"/trust.pem\n") {
		t.Errorf("wgetrc: %q", got)
	}
	if got, want := env["JAVA_TOOL_OPTIONS"], "-Xmx1g -Djavax.net.ssl.trustStore="+dir+"/trust.jks -Djavax.net.ssl.trustStoreType=JKS"; got != want {
		t.Errorf("Java gets %q, want %q", got, want)
	}
	// Without inspected names, nothing points there.
	p.Settings.Inspected = []route.Inspected{{Name: "api.test", Port: 80, Plain: true}}
	bare := map[string]string{}
	if k.dress(bare); len(bare) > 0 {
		t.Errorf("without a certificate there are %v", bare)
	}
}

// TestTrustOfHostile: a broker that was taken over ends, and writes nothing more.
func TestTrustOfHostile(t *testing.T) {
	k := &brokerKeeper{book: newBook(nil, nil), roots: newRoots(nil)}
	k.base = &base{publisher: &publisher{dir: state.Dir(t.TempDir())}}
	k.trust = newTrust(k)
	for _, bad := range []string{"", "\x00", "\xff\xffx"} {
		if k.trust.take(wire.Message{Text: bad}) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	var err error
	for range 100 {
		if err = k.trust.take(wire.Message{Text: wire.Pieces([]byte("x"))}); err != nil {
			break
		}
	}
	if err == nil {
		t.Error("authorities without end are taken")
	}
}

// TestJavaStore holds the form. That Java reads it is tried with Java's own clients.
func TestJavaStore(t *testing.T) {
	var b bytes.Buffer
	if err := writeJavaStore(&b, [][]byte{[]byte("DER")}); err != nil {
		t.Fatal(err)
	}
	want := "\xfe\xed\xfe\xed\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x02\x00\x0cagent-init-0\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05X.509\x00\x00\x00\x03DER"
	sum := sha1.Sum([]byte("\x00c\x00h\x00a\x00n\x00g\x00e\x00i\x00tMighty Aphrodite" + want))
	if got := b.String(); got != want+string(sum[:]) {
		t.Errorf("got %q", got)
	}
}
