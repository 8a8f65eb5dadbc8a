package container

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

// TestContainerAgents tests the image of every agent that AGENT_INIT_AGENTS names. The internet is one where
// every name has an address, and every server speaks the APIs of the models: an agent reaches what it
// likes, and is seen doing so. Those of AGENT_INIT_AGENTS_REAL are the agents themselves; the
// others are stand-ins, of which only the image is worth a look.
func TestContainerAgents(t *testing.T) {
	e := needEngine(t)
	built := strings.Fields(os.Getenv("AGENT_INIT_AGENTS"))
	if len(built) == 0 {
		lacking(t, "the tests of the agents need their images: test/agents.sh")
	}
	heard := &heard{model: fakellm.New()}
	n := &internet{everyName: true, web: heard.noting()}
	n.start(t, e)
	real := strings.Fields(os.Getenv("AGENT_INIT_AGENTS_REAL"))
	var rows []row
	bridge, strict := map[string]string{}, map[string]string{} // what came of each agent, on two ways to run Docker
	for _, a := range agents() {
		if !slices.Contains(built, a.name) {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			image := "agent-init-test/agent-" + a.name
			e.mustHave(t, image)
			r := row{agent: a, real: slices.Contains(real, a.name), version: e.must(t, "inspect", "--format", `{{index .Config.Labels "org.agent-init.agent.version"}}`, image)}
			r.size = e.size(t, image)
			if r.real {
				r.packed = packed(t, a.name)
			}
			r.imaged = t.Run("image", func(t *testing.T) { testAgentImage(t, e, a, image) })
			r.versioned = t.Run("version", func(t *testing.T) { testAgentVersion(t, e, a, image, r.version) })
			if r.real {
				t.Run("names", func(t *testing.T) { testInProgram(t, e, a, image, r.version) })
			}
			heard.forget()
			var alone []string
			answered := t.Run("confined", func(t *testing.T) { alone, r.blocked = testOnTerminal(t, e, n, a, image) })
			if r.real {
				r.prompted = answered
				t.Run("told", func(t *testing.T) { testTold(t, e, a, image, heard) })
				t.Run("drift", func(t *testing.T) { r.shipped, r.vendor = testDrift(t, e, n, a, image, alone) })
				r.prompted = t.Run("brokered", func(t *testing.T) { testBrokered(t, e, n, a, image, heard) }) && answered
			}
			bridge[a.name] = r.outcome(r.prompted, r.blocked)
			t.Run("hardened", func(t *testing.T) {
				var prompted, blocked bool
				if r.real {
					prompted = t.Run("confined", func(t *testing.T) { blocked = testConfinedAgent(t, e, n, a, image, hardened(t, e)) })
				} else {
					t.Run("confined", func(t *testing.T) { blocked = testConfinedStandIn(t, e, n, a, image, hardened(t, e)) })
				}
				strict[a.name] = r.outcome(prompted, blocked)
			})
			rows = append(rows, r)
		})
	}
	t.Run("filter", func(t *testing.T) {
		for _, name := range built {
			if got := e.must(t, "images", "-q", "--filter", "label=org.agent-init.agent="+name); got == "" {
				t.Errorf("no image is found by its label org.agent-init.agent=%s", name)
			}
		}
	})
	checkTable(t, rows)
	checkPlace(t, "Docker", bridge)
	checkPlace(t, "Docker: own network, read-only root, no new privileges", strict)
}

// setting is how a container is run, besides what every run has.
type setting struct {
	options []string
	denied  []string
}

// onBridge is the engine's default network.
func onBridge() setting { return setting{denied: args(denied4(bridgeGateway), denied6())} }

// hardened is a user-defined network, which has the engine's own DNS and no IPv6, and a root that can't be written.
func hardened(t *testing.T, e *engine) setting {
	network, gateway := newNetwork(t, e)
	return setting{denied: denied4(gateway), options: []string{"--network", network, "--read-only", "--tmpfs=/tmp",
		"--tmpfs=/home/agent:uid=1000,gid=1000", "--security-opt=no-new-privileges"}}
}

// noHelpers is true where nothing could give more privileges, or take the place of agent-init.
const noHelpers = `for p in sudo doas pkexec tini docker-init dumb-init catatonit; do ! command -v $p || exit 1; done`

// testAgentImage holds what every agent's image promises.
func testAgentImage(t *testing.T, e *engine, a agentSpec, image string) {
	program := a.command()[0]
	volumes := strings.Fields(e.must(t, "inspect", "--format", "{{range $v, $_ := .Config.Volumes}}{{$v}} {{end}}", image))
	if len(volumes) == 0 {
		t.Error("no directory for the state is a volume")
	}
	asRoot := map[string]string{
		"no-setuid-no-setgid":       `test -z "$(find / -xdev -perm /6000)"`,
		"no-file-capability":        `test -z "$(find / -xdev -type f -exec getcap {} +)"`,
		"no-sudo-and-no-other-init": noHelpers,
	}
	asAgent := map[string]string{
		"agent-can-not-change-itself": `test -x "$(readlink -f "$(command -v ` + program + `)")" && test -z "$(find /opt /usr/local /etc -xdev -writable ! -type l)"`,
		// npm packages lose the mode of programs that they bring: Qwen Code's ripgrep was found, and could not be run.
		"programs-can-run":    `test -z "$(find /opt -type f ! -perm -1 ! -name '*.node' ! -name '*.so*' ! -name '*.pyc' -exec env LC_ALL=C grep -lP '^\x7fELF' {} +)"`,
		"state-is-the-agents": `for d in ` + strings.Join(volumes, " ") + `; do touch "$d/x" && test -O "$d" || exit 1; done; touch ~/x`,
		"policy":              `agent-init check && agent-init check --effective`,
	}
	env := strings.Fields(e.must(t, "inspect", "--format", "{{range .Config.Env}}{{.}} {{end}}", image))
	for _, off := range a.off {
		if file, setting, isFile := strings.Cut(off, ": "); isFile {
			asAgent[off] = fmt.Sprintf("tr -d '\n' <%s | grep -qF -- '%s' && test ! -w %[1]s", file, setting)
		} else if !slices.Contains(env, off) {
			t.Errorf("%s is not in the image's environment: %q", off, env)
		}
	}
	e.holds(t, image, "0", asRoot)
	e.holds(t, image, "agent", asAgent)
	var labels map[string]string
	if err := json.Unmarshal([]byte(e.must(t, "inspect", "--format", "{{json .Config.Labels}}", image)), &labels); err != nil {
		t.Fatal(err)
	}
	for _, label := range []string{"org.opencontainers.image.title", "org.opencontainers.image.description", "org.opencontainers.image.documentation",
		"org.opencontainers.image.version", "org.opencontainers.image.licenses", "org.agent-init.agent", "org.agent-init.agent.version", "org.agent-init.base"} {
		if labels[label] == "" {
			t.Errorf("the label %s is missing", label)
		}
	}
}

// holds runs scripts as a user in one container of an image, without agent-init; each has to end with 0.
func (e *engine) holds(t *testing.T, image, user string, scripts map[string]string) {
	t.Helper()
	all := ""
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		all += fmt.Sprintf("( %s ) || echo %s\n", scripts[name], strconv.Quote("does not hold: "+strings.ReplaceAll(name, `"`, "")))
	}
	r := e.docker("run", "--name", e.name(t), "--cap-drop=ALL", "--cap-add=DAC_READ_SEARCH", "--network=none", "--user", user, "--entrypoint=sh", image, "-c", all+"echo all were tried")
	if r.code != 0 || strings.Contains(r.stdout, "does not hold: ") || !strings.Contains(r.stdout, "all were tried") {
		t.Errorf("%s as %s: exit %d\n%s%s", image, user, r.code, r.stdout, r.stderr)
	}
}

func testAgentVersion(t *testing.T, e *engine, a agentSpec, image, version string) {
	r := e.docker(args([]string{"run", "--name", e.name(t), "--cap-drop=ALL", "--network=none", "--user=agent", "--entrypoint=" + a.command()[0], image, "--version"})...)
	if r.code != 0 || !strings.Contains(r.stdout, version) {
		t.Errorf("--version: exit %d, want %s\n%s%s", r.code, version, r.stdout, r.stderr)
	}
}

// credentials are the arguments that give an agent what it logs in with.
func (a agentSpec) credentials() []string {
	var out []string
	for _, kv := range a.env {
		out = append(out, "-e", kv)
	}
	return out
}

// testOnTerminal has a person work with the agent's image on a terminal, with nothing allowed but what the image allows, and the
// provider where there is none; then has the agent answer without a terminal, in the same container; and then tries there what
// must be refused. It returns what the agent asked for where nothing confined it.
func testOnTerminal(t *testing.T, e *engine, n *internet, a agentSpec, image string) (alone []string, blocked bool) {
	denied := onBridge().denied
	screens := a.screens()
	for i, c := range screens {
		n.forget()
		seen := testScreens(t, e, n, a, image, c)
		alone = append(alone, seen.alone...)
		if i+1 < len(screens) {
			seen.end()
			continue
		}
		out := e.docker(args([]string{"exec", seen.inside, "/usr/local/bin/agent-init", "exec", "--", "bash", "/test/agent.sh"},
			a.asShipped(), []string{"--"}, denied)...)
		r := parseReport(t, out.stdout)
		if r.command != "0" || !strings.Contains(out.stdout, a.answer()) {
			t.Errorf("%s ended %q, want 0 and %q\n%s%s", a.name, r.command, a.answer(), out.stdout, out.stderr)
		}
		blocked = mustBeBlocked(t, seen.queries(), r, denied, policyOf(t, a))
		seen.end()
	}
	return alone, blocked
}

// byName are the arguments that take the image's routes away: the agent asks for its provider itself, and holds the key.
func byName(t *testing.T, a agentSpec) []string {
	return mounts(t, map[string]string{"/etc/agent-init/allowlist.d/" + a.name + ".yaml": ""})
}

// testConfinedAgent has the agent answer one prompt with nothing allowed but what its image allows, and
// the provider where there is none; and then tries what must be refused.
func testConfinedAgent(t *testing.T, e *engine, n *internet, a agentSpec, image string, s setting) (blocked bool) {
	n.forget()
	out := e.docker(args([]string{"run", "--name", e.name(t)}, privileges(), s.options, allow(t, a.allow+"\n"), byName(t, a), agent(t, n), a.credentials(),
		[]string{image, "bash", "/test/agent.sh"}, a.asShipped(), []string{"--"}, s.denied)...)
	t.Logf("docker run took %v", out.took)
	r := parseReport(t, out.stdout)
	if !r.started {
		t.Fatalf("the agent did not start: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	if r.command != "0" || !strings.Contains(out.stdout, fakellm.Text) {
		t.Errorf("%s ended %q, want 0 and %q\n%s%s", a.name, r.command, fakellm.Text, out.stdout, out.stderr)
	}
	_, queries := n.seen()
	return mustBeBlocked(t, queries, r, s.denied, policyOf(t, a))
}

// testConfinedStandIn tries what must be refused, in the image of a stand-in.
func testConfinedStandIn(t *testing.T, e *engine, n *internet, a agentSpec, image string, s setting) (blocked bool) {
	n.forget()
	out := e.docker(args([]string{"run", "--name", e.name(t)}, privileges(), s.options, agent(t, n),
		[]string{image, "bash", "/test/agent.sh"}, a.command(), []string{"--version", "--"}, s.denied)...)
	r := parseReport(t, out.stdout)
	if !r.started || r.command != "0" {
		t.Fatalf("exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	_, queries := n.seen()
	return mustBeBlocked(t, queries, r, s.denied, policyOf(t, a))
}

// mustBeBlocked checks the refusals as the agent saw them, its privileges, and that the far side saw
// no question for a name that is not allowed.
func mustBeBlocked(t *testing.T, queries []string, r report, denied []string, allowed func(string) bool) bool {
	t.Helper()
	before := t.Failed()
	t.Run("blocked", func(t *testing.T) {
		r.mustRefuse(t, denied)
		r.mustBePowerless(t)
		for _, q := range queries {
			if name := strings.TrimSuffix(q, "."); !allowed(name) {
				t.Errorf("a question for %s arrived", name)
			}
		}
	})
	return before || !t.Failed()
}

// policyOf says which names the agent may ask for.
func policyOf(t *testing.T, a agentSpec) func(name string) bool {
	sections := preset(t, a.name)
	list := args(sections["required"], sections["sign-in"], []string{a.allow, "npm.example.com", "pypi.org", "files.pythonhosted.org"})
	return func(name string) bool { return covers(list, name) }
}

// covers says whether an entry of list is about name.
func covers(list []string, name string) bool {
	return slices.ContainsFunc(list, func(entry string) bool {
		base, wild := strings.CutPrefix(entry, "*.")
		return entry == name || wild && (name == base || strings.HasSuffix(name, "."+base))
	})
}

// preset reads the names of a preset by section.
func preset(t *testing.T, name string) map[string][]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../allowlist.d", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	sections, section := map[string][]string{}, ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "# "))
		if s, ok := strings.CutSuffix(line, ":"); ok {
			section = s
		} else if entry, _, ok := strings.Cut(line, "  # "); ok {
			sections[section] = append(sections[section], strings.Fields(entry)[0])
		}
	}
	return sections
}
