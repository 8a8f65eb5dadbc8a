package main

import (
	"os/exec"
	"time"
)

// AgentInit is agent-init at the path binary, without its firewall: what is
// left is the supervision, behind the drop of privileges. The command has the
// terminal itself: a session would give it another.
func AgentInit(binary string) Subject {
	return agentInit("agent-init", binary, "--unsafe-no-firewall")
}

// Confined is agent-init with its firewall and its guard.
func Confined(binary string) Subject {
	s := agentInit("agent-init, confined", binary)
	s.Helpers = 1
	return s
}

func agentInit(name, binary string, options ...string) Subject {
	return Subject{Name: name, Patience: time.Minute, Argv: func(_ Mode, f Flags) []string {
		argv := append([]string{binary, "run", "--selftest", "off", "--user", "nobody", "--config", "/run/none", "--session", "never"}, options...)
		switch {
		case f.Grace == Forever:
			argv = append(argv, "--grace", "0")
		case f.Grace != 0:
			argv = append(argv, "--grace", f.Grace.String())
		}
		if f.Target != "" {
			argv = append(argv, "--signal-target", f.Target)
		}
		return append(argv, "--")
	}}
}

// Peers returns those of tini, dumb-init and catatonit that are installed.
func Peers() []Subject {
	var found []Subject
	for _, s := range []Subject{
		{Name: "tini", Argv: func(m Mode, f Flags) []string {
			argv := []string{"tini"}
			if m == Below {
				argv = append(argv, "-s")
			}
			if f.Target == "group" {
				argv = append(argv, "-g")
			}
			return append(argv, "--")
		}},
		{Name: "dumb-init", Argv: func(_ Mode, f Flags) []string {
			if f.Target == "child" {
				return []string{"dumb-init", "--single-child", "--"}
			}
			return []string{"dumb-init", "--"}
		}},
		{Name: "catatonit", Argv: func(_ Mode, f Flags) []string {
			if f.Target == "group" {
				return []string{"catatonit", "-g", "--"}
			}
			return []string{"catatonit", "--"}
		}},
	} {
		if _, err := exec.LookPath(s.Name); err != nil {
			continue
		}
		own := s.Argv
		s.Argv = func(m Mode, f Flags) []string {
			if f.Grace > 0 { // none of them kills; all of them wait for ever
				return nil
			}
			return own(m, f)
		}
		s.Drop = []string{"setpriv", "--reuid=65534", "--clear-groups", "--"}
		s.Patience = 6 * time.Second
		found = append(found, s)
	}
	return found
}
