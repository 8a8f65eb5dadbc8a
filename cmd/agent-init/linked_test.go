package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// linkedNever are the packages that parse what the network, the agent or a child of the
// keeper's sends. The keeper links none of them.
var linkedNever = []string{
	module + "pkg/resolver", module + "pkg/gateway", module + "internal/guard", module + "internal/window/server", module + "pkg/session",
	module + "pkg/session/attach", module + "pkg/session/protocol", module + "pkg/session/terminal",
	"github.com/miekg/dns", "crypto/tls", "net/http",
}

// unused are imports for the sake of a type alone, of which nothing is linked: a list of
// public suffixes names the interface by which net/http's cookie jar would ask it.
var unused = map[string]string{"golang.org/x/net/publicsuffix": "net/http/cookiejar"}

// TestKeeperLinks: the process that holds CAP_NET_ADMIN has no parser of what is hostile.
// It links encoding/json all the same: internal/state reads files that root alone can write,
// pkg/control reads the operator's requests, pkg/audit the end of the keeper's own log, and
// internal/wire writes what children are told. TestNoJSONOfChildren holds who reads any.
func TestKeeperLinks(t *testing.T) {
	imports := importsBelow(t, "internal/keeper")
	for _, bad := range linkedNever {
		if path := wayTo(imports, module+"internal/keeper", bad); path != nil {
			t.Errorf("the keeper links %s, by %s", bad, strings.Join(path, " > "))
		}
	}
	if slices.Contains(imports[module+"internal/keeper"], "encoding/json") {
		t.Error("the keeper imports encoding/json: what children send is no JSON, and files are written by internal/state")
	}
	for _, linked := range []string{module + "pkg/policy", module + "internal/wire"} {
		if wayTo(imports, module+"internal/keeper", linked) == nil {
			t.Errorf("it links %s, and this test does not see it", linked)
		}
	}
}

// TestGuardLinks shows that the rule can fail: the guard links what the keeper may not, and
// nothing that changes rules.
func TestGuardLinks(t *testing.T) {
	imports := importsBelow(t, "internal/guard")
	for _, linked := range []string{module + "pkg/resolver", module + "pkg/gateway", "github.com/miekg/dns", "crypto/tls"} {
		if wayTo(imports, module+"internal/guard", linked) == nil {
			t.Errorf("%s is not seen", linked)
		}
	}
	for _, rules := range []string{module + "pkg/firewall", module + "pkg/firewall/internal/nft", module + "pkg/firewall/internal/xtables"} {
		if path := wayTo(imports, module+"internal/guard", rules); path != nil {
			t.Errorf("the guard links %s, by %s", rules, strings.Join(path, " > "))
		}
	}
}

// importsBelow are the imports of all that a package is linked with.
func importsBelow(t *testing.T, dir string) map[string][]string {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./"+dir)
	list.Dir, list.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		all[words[0]] = slices.DeleteFunc(words[1:], func(p string) bool { return unused[words[0]] == p })
	}
	return all
}

// wayTo is by which imports a package links another, the shortest way; nil if it doesn't.
func wayTo(imports map[string][]string, from, to string) []string {
	ways := [][]string{{from}}
	seen := map[string]bool{}
	for len(ways) > 0 {
		way := ways[0]
		ways = ways[1:]
		at := way[len(way)-1]
		if at == to {
			return way
		}
		for _, next := range imports[at] {
			if !seen[next] {
				seen[next] = true
				ways = append(ways, append(slices.Clone(way), next))
			}
		}
	}
	return nil
}
