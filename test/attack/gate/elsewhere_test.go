package gate

import (
	"io"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// dead are addresses of the lab's internet where nobody is, by what is said of it.
const dead = `table inet dead { chain in { type filter hook input priority 0;
	ip6 daddr 2001:db8:dead::1 drop; ip daddr 45.30.70.1 drop
	ip6 daddr 2001:db8:dead::2 meta l4proto tcp reject with tcp reset; ip daddr 45.30.70.2 meta l4proto tcp reject with tcp reset
	ip6 daddr 2001:db8:dead::3 reject with icmpv6 type no-route; ip daddr 45.30.70.3 reject with icmp type host-unreachable
}
}`

// TestGateElsewhere: what people use reaches a site of which one address leads nowhere, as it does without agent-init:
// the gate has accepted the connection, so the client can't try another address by itself. The log says which was used.
func TestGateElsewhere(t *testing.T) {
	mustrun.Tool(t, "nft")
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	rig.Must(t, l.Internet.Do(func() error {
		nft := exec.Command("nft", "-f", "-")
		nft.Stdin = strings.NewReader(dead)
		out, err := nft.CombinedOutput()
		if err != nil {
			t.Logf("nft: %s", out)
		}
		return err
	}))
	ways := map[string]string{"silent": "1", "refused": "2", "noroute": "3"}
	list := "other.test\n"
	for way, n := range ways {
		l.DNS.SetAddrs(way+"6.test", "2001:db8:dead::"+n, "45.30.71."+n)
		l.DNS.SetAddrs(way+"4.test", "45.30.70."+n, "45.30.72."+n)
		list += way + "6.test\n" + way + "4.test\n"
		for _, family := range []string{"6", "4"} {
			l.Web.Handle(way+family+".test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/info/refs") {
					_, _ = io.WriteString(w, strings.Repeat("a", 40)+"\trefs/heads/main\n")
					return
				}
				_, _ = io.WriteString(w, "here\n")
			}))
		}
	}
	l.DNS.SetAddrs("other.test", "45.30.73.1")
	w := rig.ConfineIn(t, l, list, lab.BoxOptions{Env: []string{"SSL_CERT_FILE=" + rig.Bundle, "NODE_EXTRA_CA_CERTS=" + rig.Bundle}})
	for _, c := range []struct{ what, program, script, want string }{
		{"curl", "/usr/bin/curl", `curl -sS "$1://$2/"`, "here\n"},
		{"git", "/usr/bin/git", `git ls-remote "$1://$2/repo.git"`, strings.Repeat("a", 40) + "\trefs/heads/main\n"},
		{"Node's fetch", "/usr/bin/node", `node -e 'fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t))' "$1://$2/"`, "here\n"},
		{"Python's urllib", "/usr/bin/python3", `/usr/bin/python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode(), end="")' "$1://$2/"`, "here\n"},
		{"Java's client", "/usr/bin/javac", `cd /tmp && cat >Get.java <<'EOF'
` + javaGet + `
EOF
			java -XX:+UseSerialGC -Xshare:auto Get.java "$1://$2/"`, "here\n"},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := rig.Sub(w, t)
			if !w.Program(c.program) {
				return
			}
			for way := range ways {
				for _, family := range []string{"6", "4"} {
					for _, scheme := range []string{"https", "http"} {
						if family == "4" && c.what != "curl" || c.what == "Java's client" && (way == "refused" || scheme == "http") {
							continue // they take long to start, and all resolve as curl does
						}
						if r := w.Script(c.script, scheme, way+family+".test"); r.Code != 0 || r.Stdout != c.want {
							t.Errorf("%s, %s, IPv%s: exit %d, %q, %s", scheme, way, family, r.Code, r.Stdout, r.Stderr)
						}
					}
				}
			}
		})
	}
	// The dead address is the one that the client chooses, whatever order its resolver has.
	for _, port := range []string{"443", "80"} {
		scheme := map[string]string{"443": "https", "80": "http"}[port]
		for way, n := range ways {
			for at, name := range map[string]string{"[2001:db8:dead::" + n + "]": way + "6.test", "45.30.70." + n: way + "4.test"} {
				w.Works("resolve", name) // again: nobody uses the dead address, so its lease may have ended
				r := w.Script(`curl -sS --resolve "$1:$2:$3" "$4://$1/"`, name, port, at, scheme)
				if r.Code != 0 || r.Stdout != "here\n" {
					t.Errorf("%s at %s: exit %d, %q, %s", name, at, r.Code, r.Stdout, r.Stderr)
				}
				chosen := netip.MustParseAddr(strings.Trim(at, "[]")).String()
				w.Audited(name+" in the place of "+chosen, func(e rig.Event) bool {
					return e.Kind == "connect" && e.Name == name && strings.HasPrefix(e.IP, "45.30.7") && e.IP != chosen && strings.HasSuffix(e.Reason, "; "+chosen+" did not answer")
				})
			}
		}
	}
	// Nowhere else: a name that is not leased the dead address is not served at its own.
	if r := w.Script(`curl -sS --resolve other.test:443:45.30.70.2 https://other.test/`); r.Code == 0 {
		t.Errorf("a name goes on from an address that is not its own: %s", r)
	}
}
