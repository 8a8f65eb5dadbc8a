package main

import (
	"flag"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/keeper"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/session/attach"
)

func configFlags(fs *flag.FlagSet) {
	fs.String("config", "/etc/agent-init", "`DIR` that holds policy.yaml, allowlist.txt and allowlist.d")
	fs.String("user", "auto", "`USER` to run the agent as: NAME, UID or UID:GID; auto takes the image's agent user or the workspace's owner")
	fs.String("selftest", "require", "`WHAT` to do if the self-test fails: require (do not start), warn, or off")
	fs.String("backend", "auto", "packet filter `BACKEND`: "+strings.Join(firewall.Backends(), ", ")+"; auto is nftables if the kernel takes its rules, else xtables")
	fs.String("mode", "enforce", "`MODE`: enforce, or monitor, which lets names and addresses through and logs what enforce would deny")
	fs.Bool("quiet", false, "show no progress of the start on a terminal")
	fs.String("log-level", "warn", "`LEVEL` of diagnostics on stderr: debug, info, warn or error")
}

func superviseFlags(fs *flag.FlagSet) {
	timeFlag(fs, "grace", 8*time.Second, "`TIME` that the agent has to end after it was asked to; 0 waits for ever")
	fs.String("session", "auto", "`WHEN` the agent runs in a session, which you can leave and come back to: auto (if started on a terminal), always or never")
	fs.String("record", "", "record the session to `FILE` as an asciicast that only root can read; further windows go to FILE.w1 and on")
	numberFlag(fs, "record-limit", 64, 1<<20, "begin another record after this many `MIB`; four are kept")
	fs.String("prefix", attach.DefaultPrefix.Name(), "`KEY` before each command to the session: ctrl-] or another control character, or none")
	fs.String("signal-target", "auto", "forward signals to `TARGET`: auto, group or child")
	fs.Bool("unsafe-no-firewall", false, "run the agent with an open network; nothing else implies this")
}

// readConfig merges the environment into the flags that were not given and
// checks every value: an unknown word stops the start rather than choosing a
// weaker mode.
func readConfig(fs *flag.FlagSet, environ []string) (keeper.Config, error) {
	env := container.Environ(environ)
	strange, err := checkVariables(env)
	if err != nil {
		return keeper.Config{}, err
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	fs.VisitAll(func(f *flag.Flag) {
		name := fault.VariableOf(f.Name)
		if v, ok := env[name]; ok && !given[f.Name] && err == nil {
			if e := fs.Set(f.Name, v); e != nil {
				err = fault.New(fault.Usage, "correct or unset "+name, "%s=%q: %w", name, v, e)
			}
		}
	})
	if err != nil {
		return keeper.Config{}, err
	}
	value := func(name string) string {
		if f := fs.Lookup(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	c := keeper.Config{
		PolicyDir: value("config"), User: value("user"), Selftest: value("selftest"), Backend: value("backend"),
		Monitor: value("mode") == "monitor", Quiet: value("quiet") == "true",
		SignalTarget: value("signal-target"), LogLevel: value("log-level"),
		UnsafeNoFirewall: value("unsafe-no-firewall") == "true",
		Session:          value("session"), Record: value("record"), Prefix: value("prefix"),
		SessionName: sessionName(env),
		HostUID:     env["HOST_UID"], HostGID: env["HOST_GID"],
		AssistantCmd: env["ASSISTANT_CMD"], Shell: env["SHELL"],
		NoColor: env["NO_COLOR"] != "", Strange: strange,
		Environ: agentEnviron(env),
		Version: version, IsSetting: isSetting,
	}
	if s := value("grace"); s != "" {
		if c.Grace, err = time.ParseDuration(s); err != nil || c.Grace < 0 {
			return keeper.Config{}, fault.New(fault.Usage, "give a time such as 8s", "--grace %s is not a time", s)
		}
	}
	if s := value("record-limit"); s != "" {
		mib, err := strconv.ParseInt(s, 10, 64)
		if err != nil || mib < 1 || mib > 1<<20 {
			return keeper.Config{}, fault.New(fault.Usage, "give a number of MiB, such as 64", "--record-limit %s is not a size", s)
		}
		c.RecordLimit = mib << 20
	}
	for _, w := range []struct {
		flag, value string
		words       []string
	}{
		{"selftest", c.Selftest, []string{"require", "warn", "off"}},
		{"backend", c.Backend, firewall.Backends()},
		{"session", c.Session, []string{"", "auto", "always", "never"}},
		{"mode", value("mode"), []string{"enforce", "monitor"}},
		{"signal-target", c.SignalTarget, []string{"", "auto", "group", "child"}},
		{"log-level", c.LogLevel, []string{"debug", "info", "warn", "error"}},
	} {
		if !slices.Contains(w.words, w.value) {
			return keeper.Config{}, fault.New(fault.Usage, "use one of: "+strings.TrimSpace(strings.Join(w.words, " ")), "--%s %q is not known", w.flag, w.value)
		}
	}
	return c, checkSession(c)
}

// checkSession checks what is not one of a few words.
func checkSession(c keeper.Config) error {
	if err := wire.CheckName(c.SessionName); err != nil {
		return fault.New(fault.Usage, "correct or unset AGENT_SESSION", "the session's name is %q: %w", c.SessionName, err)
	}
	if _, err := attach.ParsePrefix(c.Prefix); c.Prefix != "" && err != nil {
		return fault.New(fault.Usage, "use --prefix ctrl-] or another control character", "--prefix: %w", err)
	}
	if c.Record != "" && c.Session == "never" {
		return fault.New(fault.Usage, "leave out one of the two", "--record records a session, and --session never has none")
	}
	return nil
}

// sessionName is what the environment calls the session.
func sessionName(env map[string]string) string {
	for _, v := range []string{"AGENT_SESSION", "TMUX_SESSION"} {
		if env[v] != "" {
			return env[v]
		}
	}
	return "agent"
}

// agentEnviron is the container's environment less what is agent-init's own:
// its variables may hold what the agent has no business with.
func agentEnviron(env map[string]string) map[string]string {
	out := maps.Clone(env)
	for k := range out {
		if strings.HasPrefix(k, fault.EnvPrefix) {
			delete(out, k)
		}
	}
	return out
}
