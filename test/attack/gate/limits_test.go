package gate

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// What can't be closed, in tests that say so by themselves should it ever be,
// and that the record of it is true.

// TestAuditTellsNameFromAddress: where the name outside of TLS is one and the host inside
// another, the name outside is what is judged, and what the log says.
func TestAuditTellsNameFromAddress(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	w.Works("resolve", "ok.test")
	ok4, _ := rig.Named("ok.test")
	w.Lab.Web.Forget()
	w.Blocked("http", "-h1", "-insecure", "-addr", ok4.String()+":443", "-sni", "evil.test", "-host", "ok.test", "https://ok.test/")
	if r := w.Lab.Web.Requests(); len(r) > 0 {
		t.Errorf("%d requests arrived, the first of them for %s", len(r), r[0].Host)
	}
	w.Audited("the name that was refused", func(e rig.Event) bool { return e.Kind == "connect" && e.Verdict == "deny" && e.Name == "evil.test" })
}

// TestCoalescingIsAKnownLimit: another authority on a connection of HTTP/2 to an
// allowed name arrives, for TLS is not broken. The log has the name outside, and
// no other.
func TestCoalescingIsAKnownLimit(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	w.Works("resolve", "ok.test")
	ok4, _ := rig.Named("ok.test")
	w.Lab.Web.Forget()
	p := w.Poke("http", "-insecure", "-addr", ok4.String()+":443", "-sni", "ok.test", "-host", "evil.test", "https://ok.test/")
	r := w.Lab.Web.Requests("evil.test")
	if !p.OK || len(r) != 1 || r[0].SNI != "ok.test" || r[0].Proto != "HTTP/2.0" {
		t.Errorf("no longer a limit? %s, %d requests: say so in SECURITY.md", p, len(r))
	}
	w.Audited("the name outside", func(e rig.Event) bool { return e.Kind == "connect" && e.Verdict == "allow" && e.Name == "ok.test" })
	if wrong := w.Audit(func(e rig.Event) bool { return e.Name == "evil.test" }); len(wrong) > 0 {
		t.Errorf("the log has what it can't know: %+v", wrong[0])
	}
}

// TestUploadToAllowedIsAKnownLimit: what goes to an allowed service goes there. The log has how
// much it was.
func TestUploadToAllowedIsAKnownLimit(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	const size = 1 << 20
	w.Works("http", "-method", "POST", "-size", "1048576", "https://ok.test/upload")
	w.Audited("the connection's bytes", func(e rig.Event) bool { return strings.HasPrefix(e.Name, "ok.test") && e.Out >= size })
}
