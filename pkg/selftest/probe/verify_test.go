package probe

import (
	"encoding/pem"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/selftest"
)

// TestKernelVerified: the verdict is that of all authorities, wherever the system has the one that signed.
func TestKernelVerified(t *testing.T) {
	root, other := newAuthority(t), newAuthority(t)
	middle := authorityOf(t, "test CA between", &root)
	later := time.Now().Add(time.Hour)
	served := middle.issue(t, requiredName, later)
	served.Certificates[0].Certificate = append(served.Certificates[0].Certificate, middle.cert.Raw)
	chain := shake(served)
	good := shake(root.issue(t, requiredName, later))
	otherwise := func(typ string, headers map[string]string) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: typ, Headers: headers, Bytes: root.cert.Raw})
	}
	unknown := "the certificate of 203.0.113.2 is signed by an authority that this image does not know"
	for name, tt := range map[string]struct {
		file, dir []byte // nil: there is none
		serve     func(net.Conn)
		want      string
	}{
		"one of many":                {bundleOf(other, root), nil, good, ""},
		"of the same name, behind":   {bundleOf(other, root, other), nil, good, ""},
		"through another":            {bundleOf(other, root), nil, chain, ""},
		"only in the directory":      {bundleOf(other), bundleOf(root), good, ""},
		"without a file":             {nil, bundleOf(other, root), chain, ""},
		"of the same name, another":  {bundleOf(other), bundleOf(other), good, unknown},
		"none":                       {bundleOf(), bundleOf(), good, unknown},
		"the one between is none":    {bundleOf(other), nil, chain, unknown},
		"in a block of another type": {otherwise("X509 CERTIFICATE", nil), nil, good, unknown},
		"in a block with headers":    {otherwise("CERTIFICATE", map[string]string{"Trust": "yes"}), nil, good, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := os.MkdirTemp("", "selftest-ca")
			must(t, err)
			t.Cleanup(func() { os.RemoveAll(at) })
			must(t, os.Chmod(at, 0o755))
			must(t, os.Mkdir(filepath.Join(at, "certs"), 0o755))
			for file, data := range map[string][]byte{"ca.pem": tt.file, "certs/1.pem": tt.dir} {
				if data != nil {
					must(t, os.WriteFile(filepath.Join(at, file), data, 0o644))
				}
			}
			p := testPlan()
			p.Required = []selftest.Target{{Name: requiredName, Port: 443, TLS: true}}
			newWorld(t, p)
			serveDNS(t, "tcp", p.System[0], asGuard)
			serveDNS(t, "udp", p.System[0], asGuard)
			listenTCP(t, netip.MustParseAddrPort(requiredAddr+":443"), tt.serve)
			r := runChild(t, p, nobody, "SSL_CERT_FILE="+filepath.Join(at, "ca.pem"), "SSL_CERT_DIR="+filepath.Join(at, "certs"))
			c := r.Checks[len(r.Checks)-1]
			if want := requiredAddr + ", TLS 1.3"; c.Name != "required" || c.OK != (tt.want == "") || tt.want == "" && c.Detail != want || tt.want != "" && c.Detail != tt.want {
				t.Errorf("%+v, want %q", c, tt.want)
			}
		})
	}
}

// bundleOf is a file of authorities.
func bundleOf(all ...authority) []byte {
	text := []byte("# what a bundle may have besides\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	for _, a := range all {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})...)
	}
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
