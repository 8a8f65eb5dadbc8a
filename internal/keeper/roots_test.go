package keeper

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// TestRootsWithout: a file that has no certificate is no list of authorities, and the one before stays.
func TestRootsWithout(t *testing.T) {
	mustrun.Root(t)
	dir, err := os.MkdirTemp("/var/lib", "agent-init-roots")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	f := filepath.Join(dir, "ca.pem")
	r := newRoots(map[string]string{"SSL_CERT_FILE": f})
	const one = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	for _, data := range []string{one, "", "# nothing\n"} {
		if err := os.WriteFile(f, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := r.read(); (err == nil) != (data == one) || data != one && !strings.Contains(err.Error(), "has no certificate") {
			t.Errorf("%q: %v", data, err)
		}
		if string(r.pem) != one {
			t.Errorf("%q: it trusts %q", data, r.pem)
		}
	}
}
