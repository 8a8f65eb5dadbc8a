package dns

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// cluster is how a pod of Kubernetes finds names.
const cluster = "nameserver 192.0.2.53\nsearch ns.svc.lab svc.lab lab corp.example\noptions ndots:5\n"

// muslGet connects as programs with musl do.
const muslGet = `#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int n, char **arg) {
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	if (getaddrinfo(arg[1], arg[2], &hints, &found)) return 1;
	for (; found; found = found->ai_next) {
		int s = socket(found->ai_family, SOCK_STREAM, 0);
		if (!connect(s, found->ai_addr, found->ai_addrlen)) { puts("connected"); return 0; }
		close(s);
	}
	return 2;
}`

const muslPath = "/opt/get"

// muslProgram is a program with musl, if this machine can make one.
func muslProgram(t *testing.T) []lab.File {
	dir := t.TempDir()
	source, made := filepath.Join(dir, "get.c"), filepath.Join(dir, "get")
	if err := os.WriteFile(source, []byte(muslGet), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("musl-gcc"); err != nil {
		t.Log("left out: this machine has no musl-gcc")
		return nil
	}
	if said, err := exec.Command("musl-gcc", "-static", "-o", made, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	program, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	return []lab.File{{Path: muslPath, Data: program, Mode: 0o755}}
}

// callers are programs that connect to a name and a port, each with its own resolver or a C library's.
func callers(w *rig.World, musl bool) map[string]string {
	out := map[string]string{"Go": "poke tcp $1:$2"}
	if musl {
		out["musl"] = muslPath + " $1 $2"
	}
	for path, script := range map[string]string{
		"/usr/bin/getent":  "getent ahosts $1",
		"/usr/bin/curl":    "curl -sS --max-time 5 telnet://$1:$2 </dev/null || test $? = 28", // it waits for the server
		"/usr/bin/python3": `/usr/bin/python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], sys.argv[2]), 20)' $1 $2`,
		"/usr/bin/node":    `node -e 'require("net").connect(process.argv[2], process.argv[1], function () { this.destroy() })' $1 $2`,
		"/usr/bin/perl":    `perl -MIO::Socket::INET -e 'IO::Socket::INET->new(PeerAddr => "$ARGV[0]:$ARGV[1]") or die' $1 $2`,
	} {
		if w.Program(path) {
			out[path] = script
		}
	}
	return out
}

// TestShortNames: an entry with a short name opens what programs of this place reach by that name, and nothing else
// that could be meant by it. Whatever says something about the name says the same.
func TestShortNames(t *testing.T) {
	l := rig.NewLab(t)
	for name, addr := range map[string]string{
		"db.ns.svc.lab": "10.5.5.5", "db.corp.example": "10.6.6.6", "db.lab": "10.6.6.7", "web.other.svc.lab": "10.5.5.6", "evil.ns.svc.lab": "10.6.6.8",
		"full.ns.svc.lab": "10.5.5.7", "gone.ns.svc.lab": "10.6.6.9", "intranet.corp.example": "10.5.5.8", "db.evil": "10.6.6.10", "both.ns.svc.lab": "10.5.5.9",
	} {
		l.DNS.SetAddrs(name, addr)
	}
	musl := muslProgram(t)
	w := rig.ConfineIn(t, l, "ok.test\ndb:5432\nweb.other:8080 private\nfull.ns.svc.lab:80 private\nintranet:8080\n"+
		"both:5432\nboth.ns.svc.lab:8080 private\n*.zone.lab private\n!gone\ngone.ns.svc.lab:5432 private\n", lab.BoxOptions{Resolv: cluster, Files: musl})
	for path, script := range callers(w, musl != nil) {
		for name, port := range map[string]string{"db": "5432", "web.other": "8080", "full": "80"} {
			if r := w.Launch("sh", "-ec", script, "sh", name, port).Wait(lab.Patience); r.Code != 0 {
				t.Errorf("%s:%s by %s: %s", name, port, path, r)
			}
		}
	}
	for _, at := range []string{"intranet:8080", "both:5432", "both:8080"} {
		w.Works("tcp", at)
	}
	w.Works("http", "http://full/")
	w.Works("http", "http://full.ns.svc.lab/")

	w.Blocked("tcp", "db.corp.example:5432") // another server of that name, which the agent could choose
	w.Blocked("tcp", "db.lab:5432")
	w.Blocked("tcp", "10.6.6.6:5432")
	w.Blocked("tcp", "db:8080")
	w.Blocked("tcp", "full:5432")
	w.Blocked("resolve", "db.evil")
	w.Blocked("resolve", "evil")
	w.Blocked("resolve", "gone")
	w.Blocked("resolve", "gone.ns.svc.lab")
	w.Blocked("resolve", "db.other.search.not.listed")
	for _, q := range l.Queries() {
		if strings.HasPrefix(q.Name, "gone.") || strings.HasPrefix(q.Name, "evil.") || q.Name == "db.corp.example" || strings.HasPrefix(q.Name, "ok.test.corp") {
			t.Errorf("%s was asked for", q.Name)
		}
	}

	w.Says([]string{"explain", "db"}, "db 5432/tcp: allowed", "asked as", "db.ns.svc.lab, db.svc.lab, db.lab, db.corp.example, db: the first that exists", "10.5.5.5")
	w.Says([]string{"explain", "full"}, "full.ns.svc.lab 80/tcp: allowed", "10.5.5.7")
	w.Says([]string{"explain", "gone"}, "denied", "!gone")
	w.Says([]string{"explain", "gone.ns.svc.lab:5432"}, "denied", "!gone")
	w.Says([]string{"suggest"}, "\nevil  ", "\ndb:8080  ", "\nfull.ns.svc.lab:5432 private  ")
	if lines := w.Did("suggest"); strings.Contains(lines, "\ndb ") || strings.Contains(lines, "\nfull ") || strings.Contains(lines, "\ngone") {
		t.Errorf("suggested is\n%s", lines)
	}
	w.Audited("who it is", func(e rig.Event) bool {
		return e.Kind == "dns" && e.Name == "db" && strings.Contains(e.Reason, "db.ns.svc.lab")
	})

	// What is denied under one of its names is denied under all, at once.
	for _, deny := range []string{"db", "db.ns.svc.lab"} {
		w.Works("tcp", "db:5432")
		w.Did("deny", deny)
		w.Blocked("tcp", "db:5432")
		w.Blocked("tcp", "10.5.5.5:5432")
		for _, g := range w.Grants() {
			if g.Target == deny {
				w.Did("grants", "--end", strconv.Itoa(g.Number))
			}
		}
	}
}

// TestShortNamesFollow: what resolv.conf says by now is how short names are looked for, and a server that does not
// answer is no reason to take one further down the list.
func TestShortNamesFollow(t *testing.T) {
	l := rig.NewLab(t)
	l.DNS.SetAddrs("db.a.lab", "10.5.5.5")
	l.DNS.SetAddrs("db.b.lab", "10.6.6.6")
	w := rig.ConfineIn(t, l, "db:5432\n", lab.BoxOptions{Resolv: "nameserver 192.0.2.53\nsearch a.lab b.lab\noptions ndots:5\n"})
	w.Works("tcp", "db:5432")
	l.DNS.Set("db.a.lab", lab.Answer{Silent: true})
	w.Blocked("tcp", "10.6.6.6:5432")
	asked := func() (names []string) {
		for _, q := range l.Queries() {
			names = append(names, q.Name)
		}
		return names
	}
	if slices.Contains(asked(), "db.b.lab") {
		t.Errorf("asked for %v", asked())
	}
	if r := w.Root("sh", "-c", "printf 'nameserver 192.0.2.53\\nsearch b.lab\\noptions ndots:5\\n' > /etc/resolv.conf"); r.Code != 0 {
		t.Fatal(r)
	}
	if !rig.Eventually(lab.Patience, func() bool {
		return strings.Contains(w.Root("agent-init", "explain", "db").Stdout, "db.b.lab, db: the first")
	}) {
		t.Fatalf("explain: %s", w.Root("agent-init", "explain", "db"))
	}
}
