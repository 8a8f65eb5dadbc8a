package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// decoders are all functions that read JSON, and whose it is. The process that holds
// CAP_NET_ADMIN reads none of a child's: a child is what the agent may have taken
// over, and a parser is how it would be.
var decoders = map[string]string{
	// The keeper, and what starts it.
	"cmd/agent-init/run.go: bringUp":          "up, which starts a keeper: that keeper's word",
	"internal/state/dir.go: Read":             "anybody: root's files, by the keeper",
	"pkg/audit/chain.go: linkOf":              "the keeper: the end of its own log; a command: the log",
	"pkg/audit/chain.go: readNote":            "the keeper and a command: what the keeper has noted of its log",
	"pkg/control/control.go: parseRequest":    "the keeper: requests of root's; the guard: the agent's",
	"pkg/privdrop/privdrop.go: UnmarshalJSON": "the stage: the keeper's order",

	// Children, which read what the keeper gives them.
	"internal/guard/guard.go: Run":                       "the guard: the keeper's configuration",
	"internal/guard/channel.go: adopt":                   "the guard: the keeper's policy",
	"internal/guard/probing.go: adoptPlan":               "the guard: the keeper's plan",
	"internal/window/server/server.go: Run":              "the session server: the keeper's configuration",
	"internal/stage/child/child.go: Run":                 "the stage: the keeper's order",
	"internal/stage/child/child.go: Told":                "a child: the keeper's configuration",
	"internal/stage/child/brokerload.go: ReadBrokerLoad": "the broker: the keeper's routes",
	"internal/broker/broker.go: Run":                     "the broker: the keeper's configuration",
	"pkg/broker/onward/credential.go: unquoted":          "the broker: its own credential, where an answer repeats it",
	"pkg/broker/login/login.go: Parse":                   "the broker: a login that the keeper handed over, and its provider's answers",
	"pkg/broker/login/login.go: sub":                     "the broker: a login that the keeper handed over, and its provider's answers",
	"pkg/broker/login/login.go: text":                    "the broker: a login that the keeper handed over, and its provider's answers",
	"pkg/broker/login/login.go: read":                    "the broker: a login that the keeper handed over, and its provider's answers",
	"pkg/broker/login/login.go: refused":                 "the broker: a login that the keeper handed over, and its provider's answers",
	"pkg/broker/login/placeholder.go: plan":              "the broker: a login that the keeper handed over, and its provider's answers",
	"pkg/broker/login/vendors.go: claude":                "the broker: a login that the keeper handed over, and its provider's answers",
	"pkg/broker/login/vendors.go: milliseconds":          "the broker: a login that the keeper handed over, and its provider's answers",
	"pkg/broker/login/vendors.go: expiry":                "the broker: a login that the keeper handed over, and its provider's answers",
	"pkg/broker/lfs.go: batch":                           "the broker: the answer of a route's server",
	"pkg/broker/lfs.go: redeem":                          "the broker: its own, which it has sealed",
	"internal/broker/webhook.go: post":                   "the broker: the keeper's order",
	"internal/wire/channel.go: ReadMemfd":                "whoever calls it, which is in this list",
	"pkg/session/protocol/protocol.go: DecodeRequest":    "the session server: its clients'",

	// Commands, which end.
	"internal/window/client/session.go: Ask":         "a command: the session server's answer",
	"internal/inspect/explain.go: read":              "a command: the log",
	"internal/inspect/hint.go: refused":              "a command: the log",
	"internal/inspect/log.go: past":                  "a command: the log",
	"internal/inspect/log.go: showLog":               "a command: the log",
	"internal/state/ask/call.go: Call":               "a command: the keeper's answer",
	"internal/inspect/published.go: readLog":         "a command: the log",
	"internal/state/policyfile.go: ReadRules":        "a command: root's files, by the keeper",
	"internal/inspect/suggest.go: Suggest":           "a command: the log",
	"internal/inspect/tools/tools.go: read":          "a command: a client's arguments of a tool",
	"internal/mcp/call.go: call":                     "a command: a client of its own standard input",
	"internal/mcp/call.go: cancel":                   "a command: a client of its own standard input",
	"internal/mcp/server.go: initialize":             "a command: a client of its own standard input",
	"internal/mcp/server.go: take":                   "a command: a client of its own standard input",
	"pkg/audit/encode.go: Decode":                    "a command: the log",
	"pkg/control/control.go: Call":                   "a command: the keeper's answer",
	"pkg/session/attach/connect.go: handle":          "a command: the session server's",
	"pkg/session/attach/help.go: answered":           "a command: the session server's",
	"internal/window/client/answers.go: cameOf":      "a command: the keeper's answer",
	"internal/window/client/answers.go: OverChannel": "the client on the container's terminal: the keeper's answer",
	"cmd/agent-init/look.go: runProbes":              "the probes of a self-test: what the keeper has them try",
	"internal/top/read.go: start":                    "a command: the log",
	"internal/top/read.go: take":                     "a command: the log",
	"internal/report/tally.go: line":                 "a command: the log",
	"internal/launch/engine.go: inspected":           "a command on the host: the engine's answer",
	"internal/launch/ui/fleet.go: inquire":           "a command on the host: what a container prints",
	"internal/launch/ui/server.go: body":             "a command on the host: the page's requests",
	"internal/launch/ui/terminal.go: take":           "a command on the host: the page's requests",
}

// TestNoJSONOfChildren walks all sources for what reads JSON: a new place has to be
// judged, and written down, before it passes.
func TestNoJSONOfChildren(t *testing.T) {
	root := filepath.Join("..", "..")
	var found []string
	for _, dir := range []string{"cmd", "internal", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() && slices.Contains(testOnly, d.Name()) {
				return filepath.SkipDir
			}
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			found = append(found, jsonReaders(t, name, source)...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range found {
		if decoders[f] == "" {
			t.Errorf("%s reads JSON; whose? A child's is none of the keeper's to parse (see internal/wire, audit.Pack, selftest.Report.Pack)", f)
		}
	}
	for f := range decoders {
		if !slices.Contains(found, f) {
			t.Errorf("%s reads no JSON any more: take it out of the list", f)
		}
	}
}

// TestNoJSONOfChildrenNotices shows that the rule can fail.
func TestNoJSONOfChildrenNotices(t *testing.T) {
	for body, want := range map[string]int{
		"json.Unmarshal(b, &v)": 1, "json.NewDecoder(r).Decode(&v)": 1, "audit.Decode(b)": 1, "wire.ReadMemfd(f, &v)": 1, "child.Told(&c, b, b)": 1,
		"json.Marshal(v)": 0, "audit.Untrusted(b)": 0, "decode(b)": 0,
	} {
		if got := jsonReaders(t, "a.go", []byte("package p\nfunc (k *keeper) f() { go func() { "+body+" }() }\n")); len(got) != want {
			t.Errorf("%s: %q", body, got)
		}
	}
}

// jsonReaders returns the functions of a file that read JSON.
func jsonReaders(t *testing.T, name string, source []byte) (out []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		reads := false
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && strings.HasPrefix(name, "pkg/audit/") {
				if f, ok := call.Fun.(*ast.Ident); ok && f.Name == "Decode" {
					reads = true
				}
			}
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			p, ok := s.X.(*ast.Ident)
			if ok && slices.Contains([]string{"json.Unmarshal", "json.NewDecoder", "audit.Decode", "wire.ReadMemfd", "child.Told"}, p.Name+"."+s.Sel.Name) {
				reads = true
			}
			return true
		})
		if reads {
			out = append(out, name+": "+f.Name.Name)
		}
	}
	return out
}
