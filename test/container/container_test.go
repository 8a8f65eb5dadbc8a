package container

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestContainer is every test of the images. They share one internet, and run one after the other:
// each looks at what arrived there.
func TestContainer(t *testing.T) {
	e := need(t)
	n := newInternet(t, e)
	t.Run("probes-can-fail", func(t *testing.T) { testProbesCanFail(t, e, n) })
	t.Run("agent", func(t *testing.T) { testAgent(t, e, n) })
	t.Run("xtables", func(t *testing.T) { testXtables(t, e, n) })
	t.Run("lifecycle", func(t *testing.T) { testLifecycle(t, e, n) })
	t.Run("supervision", func(t *testing.T) { testSupervision(t, e, n) })
	t.Run("session", func(t *testing.T) { testSession(t, e, n) })
	t.Run("exit-code", func(t *testing.T) { testExitCode(t, e, n) })
	t.Run("refusal", func(t *testing.T) { testRefusal(t, e, n) })
	t.Run("image", func(t *testing.T) { testImage(t, e) })
	t.Run("inside", func(t *testing.T) { testInside(t, e) })
	t.Run("launch", func(t *testing.T) { testLaunch(t, e, n) })
	t.Run("pairs", func(t *testing.T) { testPairs(t, e, n) })
	t.Run("faults", func(t *testing.T) { testFaults(t, e, n) })
}

// allow writes an allowlist and returns the arguments that mount it.
func allow(t *testing.T, lines string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "allowlist.txt")
	if err := os.WriteFile(path, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"-v", path + ":/etc/agent-init/allowlist.txt:ro"}
}

// agent are the arguments that mount agent.sh, and have the test's authority trusted.
func agent(t *testing.T, n *internet) []string {
	t.Helper()
	script, err := filepath.Abs("testdata/agent.sh")
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"-v", script + ":/test/agent.sh:ro",
		"-v", n.authority + ":/test/ca.pem:ro",
		"-e", "NODE_EXTRA_CA_CERTS=/test/ca.pem", "-e", "SSL_CERT_FILE=/test/ca.pem",
	}
}

// target is what agent.sh probes, as PROTO/HOST/PORT.
func target(proto, host string, port int) string { return fmt.Sprintf("%s/%s/%d", proto, host, port) }
