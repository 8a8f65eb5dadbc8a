package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/session"
	"github.com/agent-init/agent-init/pkg/session/attach"
)

// config is what flags and environment say. A flag wins over the environment.
type config struct {
	dir              string
	user             string
	selftest         string // require, warn or off
	backend          string
	monitor          bool // --mode monitor
	quiet            bool
	grace            time.Duration
	signalTarget     string
	logLevel         string
	unsafeNoFirewall bool
	session          string // auto, always or never
	record           string // file, or empty
	recordLimit      int64  // bytes
	prefix           string // key of the client on the container's terminal

	sessionName      string
	hostUID, hostGID string
	assistantCmd     string
	shell            string
	noColor          bool
	strange          []string          // variables that are no settings
	environ          map[string]string // the container's, for the agent
}

func configFlags(fs *flag.FlagSet) {
	fs.String("config", "/etc/agent-init", "`DIR` that holds policy.yaml, allowlist.txt and allowlist.d")
	fs.String("user", "auto", "`USER` to run the agent as: NAME, UID or UID:GID; auto takes the image's agent user, or the owner of the workspace")
	fs.String("selftest", "require", "`WHAT` to do if the self-test fails: require (do not start), warn, or off")
	fs.String("backend", "auto", "packet filter `BACKEND`: "+strings.Join(firewall.Backends(), ", ")+"; auto is nftables if the kernel takes its rules, else xtables")
	fs.String("mode", "enforce", "`MODE`: enforce, or monitor, which denies no name and no address, and logs what enforce would deny")
	fs.Bool("quiet", false, "show no progress of the start on a terminal")
	fs.String("log-level", "warn", "`LEVEL` of diagnostics on stderr: debug, info, warn or error")
}

func superviseFlags(fs *flag.FlagSet) {
	timeFlag(fs, "grace", 8*time.Second, "`TIME` between asking the agent to end and ending it; 0 waits for ever")
	fs.String("session", "auto", "`WHEN` the agent gets a terminal of its own that can be detached from: auto (if started on a terminal), always or never")
	fs.String("record", "", "record the session to `FILE`, and further windows to FILE.w1 and on, as asciicasts that root alone can read")
	numberFlag(fs, "record-limit", 64, 1<<20, "`MIB` at which a record is put aside for another; four are kept")
	fs.String("prefix", attach.DefaultPrefix.Name(), "`KEY` that commands to the session begin with: ctrl-] and the like, or none")
	fs.String("signal-target", "auto", "`TARGET` that gets a forwarded signal: auto, group or child")
	fs.Bool("unsafe-no-firewall", false, "run the agent with an open network; nothing else implies this")
}

// readConfig merges the environment into the flags that were not given and
// checks every value: an unknown word stops the start rather than choosing a
// weaker mode.
func readConfig(fs *flag.FlagSet, environ []string) (config, error) {
	env := environMap(environ)
	strange, err := checkVariables(env)
	if err != nil {
		return config{}, err
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
		return config{}, err
	}
	value := func(name string) string {
		if f := fs.Lookup(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	c := config{
		dir: value("config"), user: value("user"), selftest: value("selftest"), backend: value("backend"),
		monitor: value("mode") == "monitor", quiet: value("quiet") == "true",
		signalTarget: value("signal-target"), logLevel: value("log-level"),
		unsafeNoFirewall: value("unsafe-no-firewall") == "true",
		session:          value("session"), record: value("record"), prefix: value("prefix"),
		sessionName: sessionName(env),
		hostUID:     env["HOST_UID"], hostGID: env["HOST_GID"],
		assistantCmd: env["ASSISTANT_CMD"], shell: env["SHELL"],
		noColor: env["NO_COLOR"] != "", strange: strange,
		environ: agentEnviron(env),
	}
	if s := value("grace"); s != "" {
		if c.grace, err = time.ParseDuration(s); err != nil || c.grace < 0 {
			return config{}, fault.New(fault.Usage, "give a time such as 8s", "--grace %s is not a time", s)
		}
	}
	if s := value("record-limit"); s != "" {
		mib, err := strconv.ParseInt(s, 10, 64)
		if err != nil || mib < 1 || mib > 1<<20 {
			return config{}, fault.New(fault.Usage, "give a number of MiB, such as 64", "--record-limit %s is not a size", s)
		}
		c.recordLimit = mib << 20
	}
	for _, w := range []struct {
		flag, value string
		words       []string
	}{
		{"selftest", c.selftest, []string{"require", "warn", "off"}},
		{"backend", c.backend, firewall.Backends()},
		{"session", c.session, []string{"", "auto", "always", "never"}},
		{"mode", value("mode"), []string{"enforce", "monitor"}},
		{"signal-target", c.signalTarget, []string{"", "auto", "group", "child"}},
		{"log-level", c.logLevel, []string{"debug", "info", "warn", "error"}},
	} {
		if !slices.Contains(w.words, w.value) {
			return config{}, fault.New(fault.Usage, "use one of: "+strings.TrimSpace(strings.Join(w.words, " ")), "--%s %q is not known", w.flag, w.value)
		}
	}
	return c, c.checkSession()
}

// checkSession checks what is not one of a few words.
func (c config) checkSession() error {
	if err := session.CheckName(c.sessionName); err != nil {
		return fault.New(fault.Usage, "correct or unset AGENT_SESSION", "the session's name is %q: %w", c.sessionName, err)
	}
	if _, err := attach.ParsePrefix(c.prefix); c.prefix != "" && err != nil {
		return fault.New(fault.Usage, "use --prefix ctrl-] or another control character", "--prefix: %w", err)
	}
	if c.record != "" && c.session == "never" {
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

func environMap(environ []string) map[string]string {
	m := make(map[string]string, len(environ))
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m[k] = v
		}
	}
	return m
}

// logger writes diagnostics to w until muted is set: once the agent has the
// terminal, lines of ours would be drawn over its own. What matters is in the
// audit log and the status as well.
func (c config) logger(w io.Writer, muted *atomic.Bool) *slog.Logger {
	return slog.New(slog.NewTextHandler(mutable{w, muted}, &slog.HandlerOptions{Level: c.level(), ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func (c config) level() slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.logLevel)); err != nil {
		return slog.LevelWarn
	}
	return l
}

type mutable struct {
	io.Writer
	muted *atomic.Bool
}

func (m mutable) Write(p []byte) (int, error) {
	if m.muted.Load() {
		return len(p), nil
	}
	return m.Writer.Write(p)
}

func environList(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k, v := range m {
		out = append(out, fmt.Sprintf("%s=%s", k, v))
	}
	return out
}
