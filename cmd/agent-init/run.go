package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/internal/keeper"
	"github.com/agent-init/agent-init/internal/lazy"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/session/attach"
)

func runCommand() command {
	var s settings
	return command{
		name: "run", signals: true, most: -1, synopsis: "[flags] [-- CMD ARG…]",
		summary: "confine the container, prove it, and run the agent",
		example: "agent-init run -- claude",
		flags:   s.supervise,
		run: func(ctx context.Context, e environment, args []string) error {
			c, err := s.read(e)
			if err != nil {
				return err
			}
			return keeper.Run(ctx, c, e.stdin, e.stderr, args)
		},
	}
}

func sidecarCommand() command {
	var s settings
	return command{
		name: "sidecar", signals: true, takes: "no command: start the agent in its own container", synopsis: "[flags]",
		summary: "confine a network namespace that the agent's container shares; stays in the foreground",
		example: "agent-init sidecar --user 1000",
		flags:   s.confine,
		run: func(ctx context.Context, e environment, _ []string) error {
			c, err := s.read(e)
			if err != nil {
				return err
			}
			return keeper.Keep(ctx, c, "sidecar", nil)
		},
	}
}

func upCommand() command {
	var s settings
	return command{
		name: "up", takes: "no command: agent-init run starts one", synopsis: "[flags]",
		summary: "confine this container's network in the background; safe to repeat",
		example: "agent-init up --user vscode",
		flags:   s.confine,
		run: func(ctx context.Context, e environment, _ []string) error {
			c, err := s.read(e)
			if err != nil {
				return err
			}
			return bringUp(ctx, e, c)
		},
	}
}

// bringUp makes sure that a keeper runs, if need be a new one that lives on, and returns once it has proved itself.
func bringUp(ctx context.Context, e environment, c keeper.Config) error {
	if os.Geteuid() != 0 {
		return fault.New(fault.Privilege, "run it as root: docker exec -u root, or sudo in postStartCommand", "agent-init up needs root, and runs as uid %d", os.Geteuid())
	}
	var s state.State
	if state.Published(state.StatusFile, &s) == nil && s.Keeper.Alive() && s.Phase != state.PhaseFailed {
		return bringUpAgain(ctx, s, c)
	}
	// The keeper reports over a pipe: it must not depend on who started it, or on a terminal.
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	_, err = os.StartProcess(stage.Self, append([]string{"agent-init", keeperName}, e.args[1:]...), &os.ProcAttr{
		Dir: "/", Env: e.env, Files: []*os.File{null, null, null, w}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	w.Close()
	if err != nil {
		return fault.New(fault.Rules, "mount /proc in the container", "start the keeper: %w", err)
	}
	for reports := json.NewDecoder(io.LimitReader(r, 1<<20)); ; {
		var out keeper.Report
		switch err := reports.Decode(&out); {
		case err != nil:
			return fault.New(fault.Rules, "run it again with --log-level debug", "the keeper ended without a reason: %w", err)
		case out.Say != "":
			if show := keeper.NewProgress(c, os.Stderr); show != nil {
				show.Say(out.Say)
			}
		case out.Code == fault.OK:
			return nil
		default: // a next try must not find this one still ending
			_ = r.SetReadDeadline(time.Now().Add(state.EndPatience))
			_, _ = io.Copy(io.Discard, r)
			return fault.New(out.Code, out.Remedy, "%s", out.Cause)
		}
	}
}

// bringUpAgain is an up that finds a keeper at work: it has the policy read again.
func bringUpAgain(ctx context.Context, s state.State, c keeper.Config) error {
	if s.Monitor != c.Monitor {
		return fault.New(fault.Rules, "restart the container to change the mode", "the keeper that runs here is in %s mode, and %s was asked for", state.ModeWord(s.Monitor), state.ModeWord(c.Monitor))
	}
	if len(c.GivenWords) > 0 && !slices.Equal(s.Given, c.GivenWords) {
		return fault.New(fault.Rules, "restart the container to change what is given, or allow it now: agent-init allow TARGET --for start",
			"the keeper that runs here was started with other words than %s", strings.Join(c.GivenWords, " "))
	}
	if s.Phase == state.PhaseReady {
		return reload(ctx)
	}
	return inspect.Ready(os.Stderr, defaultWait)
}

const (
	keeperName = "__keeper"
	fdReport   = 3
)

func keeperCommand() command {
	var s settings
	return command{
		name: keeperName, signals: true,
		summary: "the detached keeper (started by agent-init up)",
		flags:   s.confine,
		run: func(ctx context.Context, e environment, _ []string) error {
			report := os.NewFile(fdReport, "report")
			defer runtime.KeepAlive(report) // else it could be closed before the lock is
			unix.CloseOnExec(fdReport)
			c, err := s.read(e)
			if err != nil {
				return err
			}
			return keeper.Keep(ctx, c, "up", tellParent(report))
		},
	}
}

// tellParent hands on what the keeper says. After a failure the pipe stays open for as
// long as this process lives, and holds the lock.
func tellParent(out *os.File) func(keeper.Report) {
	said := json.NewEncoder(out)
	return func(r keeper.Report) {
		_ = said.Encode(r) // the parent may have been killed
		if r.Say == "" && r.Code == fault.OK {
			out.Close()
		}
	}
}

// settings are what the flags of a command that confines say, and its environment.
type settings struct {
	keeper.Config
	mode           string
	mib            int64 // of a record
	allow, inbound given
	inside         given // of a gateway
	answer         string
	fs             *flag.FlagSet
}

// confine has those of each command that confines the container it is in.
func (s *settings) confine(fs *flag.FlagSet) {
	s.guard(fs)
	fs.Var(&s.inbound, "inbound", "also let `PORT` in from outside, as inbound of policy.yaml does; may be given more than once")
	fs.StringVar(&s.User, "user", "auto", "`USER` to run the agent as: NAME, UID or UID:GID; auto takes the image's agent user or the workspace's owner")
	fs.StringVar(&s.Backend, "backend", "auto",
		"packet filter `BACKEND`: "+strings.Join(firewall.Backends(), ", ")+"; auto is nftables if the kernel takes its rules, else xtables")
}

// guard has those of all that confine.
func (s *settings) guard(fs *flag.FlagSet) {
	s.fs = fs
	policyDir(fs, &s.PolicyDir, "`DIR` that holds policy.yaml, allowlist.txt and allowlist.d")
	s.allow, s.inbound = newGiven("allow"), newGiven("inbound")
	fs.Var(&s.allow, "allow", "also allow `ENTRY`, as in a policy file; may be given more than once. For the first try: a file is easier to review")
	fs.StringVar(&s.Selftest, "selftest", "require", "`WHAT` to do if the self-test fails: require (do not start), warn, or off")
	fs.StringVar(&s.mode, "mode", "enforce", "`MODE`: enforce, or monitor, which lets names and addresses through and logs what enforce would deny")
	fs.StringVar(&s.Phase, "phase", policy.Run, "`PHASE` to begin in: run, or setup, which each container has once")
	fs.StringVar(&s.EnvFile, "env-file", "", "also write to `FILE` the variables that say where the agent asks for APIs, for a container beside this one")
	fs.BoolVar(&s.Quiet, "quiet", false, "show no progress of the start on a terminal")
	fs.StringVar(&s.LogLevel, "log-level", "warn", "`LEVEL` of diagnostics on stderr: debug, info, warn or error")
}

// supervise has those of run, which starts the agent as well.
func (s *settings) supervise(fs *flag.FlagSet) {
	s.confine(fs)
	timeFlag(fs, &s.Grace, "grace", 8*time.Second, "`TIME` that the agent has to end after it was asked to; 0 waits for ever")
	fs.StringVar(&s.Session, "session", "auto",
		"`WHEN` the agent runs in a session, which you can leave and come back to: auto (if started on a terminal), always or never")
	fs.StringVar(&s.Record, "record", "", "record the session to `FILE` as an asciicast that only root can read; further windows go to FILE.w1 and on")
	numberFlag(fs, &s.mib, "record-limit", 64, 1<<20, "begin another record after this many `MIB`; four are kept")
	fs.StringVar(&s.Prefix, "prefix", attach.DefaultPrefix.Name(), "`KEY` before each command to the session: ctrl-] or another control character, or none")
	fs.StringVar(&s.SignalTarget, "signal-target", "auto", "forward signals to `TARGET`: auto, group or child")
	fs.BoolVar(&s.UnsafeNoFirewall, "unsafe-no-firewall", false, "run the agent with an open network; nothing else implies this")
}

// allSettings are the flags of run.
func allSettings() *flag.FlagSet {
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	new(settings).supervise(fs)
	return fs
}

// read merges the environment into the flags that were not given, and checks every value: an unknown word stops the
// start rather than choosing a weaker mode. It says which variables have no effect to whoever starts agent-init.
func (s *settings) read(e environment) (keeper.Config, error) {
	env := container.Environ(e.env)
	err := checkVariables(env)
	if err != nil {
		return keeper.Config{}, err
	}
	isGiven := map[string]bool{}
	s.fs.Visit(func(f *flag.Flag) { isGiven[f.Name] = true })
	s.fs.VisitAll(func(f *flag.Flag) {
		name := fault.VariableOf(f.Name)
		if v, ok := env[name]; ok && !isGiven[f.Name] && err == nil {
			set := func(v string) error { return s.fs.Set(f.Name, v) }
			if list, ok := f.Value.(*given); ok {
				set = list.setVariable
			}
			if e := set(v); e != nil {
				err = fault.New(fault.Usage, "correct or unset "+name, "%s=%q: %w", name, v, e)
			}
		}
	})
	if err != nil {
		return keeper.Config{}, err
	}
	c := s.Config
	c.SavedFile, c.SeenFile, c.PhaseFile = state.SavedFile, state.SeenFile, state.PhaseFile
	c.Monitor, c.RecordLimit = s.mode == "monitor", s.mib<<20
	c.KeysHint = keysHint(c.Prefix)
	c.SessionName = cmp.Or(env["AGENT_SESSION"], env["TMUX_SESSION"], "agent")
	c.HostUID, c.HostGID, c.AssistantCmd, c.Shell = env["HOST_UID"], env["HOST_GID"], env["ASSISTANT_CMD"], env["SHELL"]
	c.NoColor, c.Version = env["NO_COLOR"] != "", version
	c.IsSetting = func(flag string) bool { return allSettings().Lookup(flag) != nil }
	// The agent has no business with what our own variables may hold.
	c.Environ = env
	maps.DeleteFunc(env, func(name, _ string) bool { return strings.HasPrefix(name, fault.EnvPrefix) })
	if err := s.addTo(&c); err != nil {
		return keeper.Config{}, err
	}
	return c, s.check(c)
}

func (s *settings) check(c keeper.Config) error {
	for _, w := range []struct {
		flag, value string
		words       []string
	}{
		{"selftest", c.Selftest, []string{"require", "warn", "off"}},
		{"backend", c.Backend, firewall.Backends()},
		{"session", c.Session, []string{"", "auto", "always", "never"}},
		{"mode", s.mode, []string{"enforce", "monitor"}},
		{"phase", c.Phase, []string{policy.Run, policy.Setup}},
		{"signal-target", c.SignalTarget, []string{"", "auto", "group", "child"}},
		{"log-level", c.LogLevel, []string{"debug", "info", "warn", "error"}},
	} {
		if !slices.Contains(w.words, w.value) {
			return fault.New(fault.Usage, "use one of: "+strings.TrimSpace(strings.Join(w.words, " ")), "--%s %q is not known", w.flag, w.value)
		}
	}
	if err := sessionop.CheckName(c.SessionName); err != nil {
		return fault.New(fault.Usage, "correct or unset AGENT_SESSION", "the session's name is %q: %w", c.SessionName, err)
	}
	if _, err := attach.ParsePrefix(c.Prefix); c.Prefix != "" && err != nil {
		return fault.New(fault.Usage, "use --prefix ctrl-] or another control character", "--prefix: %w", err)
	}
	if c.Record != "" && c.Session == "never" {
		return fault.New(fault.Usage, "leave out one of the two", "--record records a session, and --session never has none")
	}
	if c.Phase == policy.Setup && c.UnsafeNoFirewall {
		return fault.New(fault.Usage, "leave out one of the two", "the packet filter ends what --phase setup opens, and --unsafe-no-firewall has none")
	}
	return nil
}

// serviceVariable is what Kubernetes sets for a service called agent-init, or agent-init-something.
var serviceVariable = lazy.Pattern(`_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// checkVariables refuses a variable that is no setting: what it was to change would stay as it is, and nobody would
// know. Its value, which may be a secret, is not said.
func checkVariables(env map[string]string) error {
	var known []string
	for _, fs := range []*flag.FlagSet{allSettings(), gatewaySettings()} {
		fs.VisitAll(func(f *flag.Flag) { known = append(known, fault.VariableOf(f.Name)) })
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !strings.HasPrefix(name, fault.EnvPrefix) || slices.Contains(known, name) || serviceVariable().MatchString(name) {
			continue
		}
		remedy := "unset it, or give it another name; agent-init run --help lists the settings"
		if meant := policy.Nearest(name, known); meant != "" {
			remedy = "did you mean " + meant + "?"
		}
		return fault.New(fault.Usage, remedy, "%s is no setting of agent-init's", name)
	}
	return nil
}

// keysHint says how a person gets at the keys of the session, if there is one for it.
func keysHint(prefix string) string {
	key, err := attach.ParsePrefix(prefix)
	if err != nil || key == 0 {
		return ""
	}
	return fmt.Sprintf("   %s ? shows the keys", key)
}

func policyDir(fs *flag.FlagSet, to *string, usage string) {
	fs.StringVar(to, "config", defaultPolicyDir, usage)
}

const defaultPolicyDir = "/etc/agent-init"

func timeFlag(fs *flag.FlagSet, to *time.Duration, name string, preset time.Duration, usage string) {
	*to = preset
	fs.Func(name, usage, func(s string) error {
		t, err := text.ParseTime(s)
		if err != nil {
			return errors.New("give a time such as 90s, 10m, 2h or 3d")
		}
		*to = t
		return nil
	})
	fs.Lookup(name).DefValue = text.Trimmed(preset)
}

// numberFlag takes a number from 1 to most. What was not given is preset.
func numberFlag(fs *flag.FlagSet, to *int64, name string, preset, most int64, usage string) {
	*to = preset
	fs.Func(name, usage, func(s string) error {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil || v < 1 || v > most {
			return fmt.Errorf("give a number from 1 to %d", most)
		}
		*to = v
		return nil
	})
	fs.Lookup(name).DefValue = strconv.FormatInt(preset, 10)
}
