package container

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
)

// testRefusal checks the starts that must not happen: the exit code, a cause, a remedy, and no agent.
func testRefusal(t *testing.T, e *engine, n *internet) {
	neighbour := neighbourName(t, e)
	another := e.name(t) // whose processes have the agent's uid
	e.must(t, "run", "-d", "--name", another, "--user=agent", "--entrypoint=sleep", e.base, "infinity")
	policy := func(content string, mode os.FileMode, uid int) []string {
		path := filepath.Join(t.TempDir(), "allowlist.txt")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, uid, uid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return []string{"-v", path + ":/etc/agent-init/allowlist.txt:ro"}
	}
	good := func() []string { return policy("api.anthropic.com\n", 0o644, 0) }
	// The machine's processes are told by its kernel's. Where these tests have a pid namespace, the self-test finds strangers.
	strangers := struct {
		code int
		says string
	}{71, "processes"}
	if comm, err := os.ReadFile("/proc/2/comm"); err != nil || string(comm) != "kthreadd\n" {
		strangers.code, strangers.says = 70, "may look into process"
	}
	for _, test := range []struct {
		name    string
		want    int
		says    string // a part of the message
		options []string
	}{
		{"no-net-admin", 77, "NET_ADMIN", args([]string{"--cap-drop=ALL", "--cap-add=SETUID", "--cap-add=SETGID", "--cap-add=SETPCAP"}, good())},
		{"no-setuid", 77, "SETUID", args([]string{"--cap-drop=ALL", "--cap-add=NET_ADMIN", "--cap-add=SETGID", "--cap-add=SETPCAP"}, good())},
		{"no-setgid", 77, "SETGID", args([]string{"--cap-drop=ALL", "--cap-add=NET_ADMIN", "--cap-add=SETUID", "--cap-add=SETPCAP"}, good())},
		{"no-setpcap", 77, "SETPCAP", args([]string{"--cap-drop=ALL", "--cap-add=NET_ADMIN", "--cap-add=SETUID", "--cap-add=SETGID"}, good())},
		{"not-root", 77, "", args(privileges(), []string{"--user=1000"}, good())},
		{"host-network", 71, "network", args(privileges(), []string{"--network=host"}, good())},
		{"host-processes", strangers.code, strangers.says, args(privileges(), []string{"--pid=host"}, good())}, // X51
		{"processes-of-another-network", 70, "may look into process", args(privileges(), []string{"--pid=container:" + another}, good())},
		{"host-network-powerless", 0, "", args([]string{"--cap-drop=ALL", "--network=host"}, good())},
		{"network-of-another-container", 71, "network", args(privileges(), []string{"--network=container:" + neighbour}, good())},
		{"policy-anyone-may-write", 78, "allowlist.txt", args(privileges(), policy("api.anthropic.com\n", 0o666, 0))},
		{"policy-of-the-group-of-root", 78, "RUN chmod -R go-w /etc/agent-init", args(privileges(), policy("api.anthropic.com\n", 0o664, 0))},
		{"policy-of-the-agent", 78, "allowlist.txt", args(privileges(), policy("api.anthropic.com\n", 0o644, 1000))},
		{"bad-policy", 78, "allowlist.txt:2", args(privileges(), policy("api.anthropic.com\n*.com\n", 0o644, 0))},
		{"required-is-not-there", 70, "nowhere.example.org", args(privileges(), policy("nowhere.example.org required\n", 0o644, 0))},
		{"few-processes", 77, "the container may have 20 processes and threads", args(privileges(), []string{"--pids-limit=20"}, good())},
		{"few-files", 77, "may have 40 open files", args(privileges(), []string{"--ulimit=nofile=40:40"}, good())},
		{"unknown-mode", 64, "selftest", args(privileges(), []string{"-e", "AGENT_INIT_SELFTEST=never"}, good())},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := tables(t, e)
			out := e.docker(args([]string{"run", "--name", e.name(t)}, test.options, agent(t, n),
				[]string{e.base, "bash", "/test/agent.sh"})...)
			// Without a capability on the host's network, either reason to refuse is right.
			if out.code != test.want && (test.want != 0 || out.code != 71 && out.code != 77) {
				t.Errorf("exit %d, want %d", out.code, test.want)
			}
			if strings.Contains(out.stdout, "agent started") {
				t.Error("the agent started")
			}
			if !strings.Contains(strings.ToLower(out.stderr), strings.ToLower(test.says)) || !strings.Contains(out.stderr, "remedy:") {
				t.Errorf("the message lacks %q or a remedy", test.says)
			}
			if after := tables(t, e); !slices.Equal(before, after) {
				t.Errorf("the engine's namespace had the tables %q, now %q", before, after)
			}
			if t.Failed() {
				t.Logf("docker run: exit %d\n%s%s", out.code, out.stdout, out.stderr)
			}
		})
	}

	// Why root's own group may write no policy: the engine gives it to who has no account.
	t.Run("uid-without-an-account", func(t *testing.T) {
		name := e.name(t)
		e.must(t, args([]string{"run", "-d", "--name", name}, privileges(), []string{e.base, "sleep", "infinity"})...)
		script := "test $(id -g) = 0 && for f in $(find /etc/agent-init /run/agent-init /var/log/agent-init ! -type s); do test ! -w $f || exit 1; done"
		if r := e.docker("exec", "-u", "501", name, "sh", "-c", script); r.code != 0 {
			t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
	})

	// The limits that are said to suffice do, with a little for the agent.
	t.Run("least-limits", func(t *testing.T) {
		out := e.docker(args([]string{"run", "--name", e.name(t), "--pids-limit=64", "--ulimit=nofile=128:128"}, privileges(), good(),
			[]string{e.base, "echo", "agent started"})...)
		if out.code != 0 || !strings.Contains(out.stdout, "agent started") {
			t.Errorf("exit %d\n%s%s", out.code, out.stdout, out.stderr)
		}
	})

	// The one way around is asked for by name, and is loud.
	t.Run("unsafe-no-firewall", func(t *testing.T) {
		out := e.docker(args([]string{"run", "--name", e.name(t), "--cap-drop=ALL", "--cap-add=SETUID", "--cap-add=SETGID", "--cap-add=SETPCAP",
			"--entrypoint=agent-init"}, agent(t, n),
			[]string{e.base, "run", "--unsafe-no-firewall", "--", "bash", "/test/agent.sh", "--", target("tcp", "1.1.1.1", 443)})...)
		r := parseReport(t, out.stdout)
		if out.code != 0 || r.probes[target("tcp", "1.1.1.1", 443)].verdict != "open" {
			t.Errorf("exit %d, want the agent to run with an open network", out.code)
		}
		if len(strings.Split(strings.TrimSpace(out.stderr), "\n")) < 2 {
			t.Error("there is no banner")
		}
		r.mustBePowerless(t)
		if t.Failed() {
			t.Logf("docker run: exit %d\n%s%s", out.code, out.stdout, out.stderr)
		}
	})
}

// listens makes it plain that someone lives in a container: agent-init sees what listens, or connects.
const listens = "exec perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen => 5, LocalPort => 7000) or die $!; sleep'"

// listening tells when it does.
var listening = []string{"bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/7000"}

// neighbourName starts a container whose network another is to share.
func neighbourName(t *testing.T, e *engine) string {
	t.Helper()
	name := e.name(t)
	e.must(t, "run", "-d", "--name", name, "--cap-drop=ALL", "--entrypoint=bash", e.base, "-c", listens)
	eventually(t, name+": something listens", within, func() bool { return e.docker(args([]string{"exec", name}, listening)...).code == 0 })
	return name
}

// tables lists what netfilter tables there are in the engine's namespace, and how many chains.
func tables(t *testing.T, e *engine) []string {
	t.Helper()
	f, err := os.Open(e.netns)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(f.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	tables, err := c.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		list = append(list, fmt.Sprintf("table %d %s", table.Family, table.Name))
	}
	chains, err := c.ListChains()
	if err != nil {
		t.Fatal(err)
	}
	for _, chain := range chains {
		list = append(list, fmt.Sprintf("chain %d %s %s", chain.Table.Family, chain.Table.Name, chain.Name))
	}
	slices.Sort(list)
	return list
}
