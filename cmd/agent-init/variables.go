package main

import (
	"flag"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/keeper"
	"github.com/agent-init/agent-init/pkg/policy"
)

// serviceVariable is what Kubernetes sets in each container for a service that is
// called agent-init, or agent-init-something.
var serviceVariable = regexp.MustCompile(`_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// checkVariables refuses a variable that is meant to be a setting and is none: what
// it was to change would stay as it is, and nobody would know. Others it returns:
// they are somebody's own, and the agent does not get them.
func checkVariables(env map[string]string) (strange []string, err error) {
	var known []string
	settings().VisitAll(func(f *flag.Flag) { known = append(known, fault.VariableOf(f.Name)) })
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case !strings.HasPrefix(name, fault.EnvPrefix), slices.Contains(known, name), serviceVariable.MatchString(name):
			continue
		case name == fault.EnvPrefix+"INBOUND":
			return nil, fault.New(fault.Usage, "write inbound: ["+portIn(env[name])+"] into policy.yaml", "%s is no setting: the policy says which ports are open to the outside", name)
		}
		if meant := policy.Nearest(name, known); meant != "" {
			return nil, fault.New(fault.Usage, "did you mean "+meant+"?", "%s is no setting of agent-init's", name)
		}
		strange = append(strange, name)
	}
	return strange, nil
}

// settings are the flags of run.
func settings() *flag.FlagSet {
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	configFlags(fs)
	superviseFlags(fs)
	return fs
}

// isSetting says whether run has such a flag.
func isSetting(flag string) bool { return settings().Lookup(flag) != nil }

// sayStrange says to whoever starts agent-init which variables have no effect.
func sayStrange(c keeper.Config, w io.Writer) {
	if len(c.Strange) > 0 {
		fault.Warn(w, strings.Join(c.Strange, ", ")+": no setting of agent-init's, and the agent does not get it", "unset it, or give it another name; agent-init run --help lists the settings")
	}
}

// portIn is the port that somebody has written, or one to show how.
func portIn(s string) string {
	if n := regexp.MustCompile(`[0-9]+`).FindString(s); n != "" {
		return n
	}
	return "3000"
}
