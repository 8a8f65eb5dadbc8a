package privdrop

import "strings"

// ours are the prefixes of variables that belong to agent-init or to whatever
// started it: they may hold secrets, or describe descriptors that are closed.
var ours = [...]string{"AGENT_INIT_", "LISTEN_", "NOTIFY_SOCKET="}

// Environment returns base without the variables that belong to agent-init,
// and with HOME, USER, LOGNAME and SHELL of id. The last of several
// definitions wins.
func Environment(base []string, id Identity) []string {
	all := append(append([]string(nil), base...),
		"HOME="+id.Home, "USER="+id.Name, "LOGNAME="+id.Name, "SHELL="+id.Shell)
	last := make(map[string]int, len(all))
	for i, v := range all {
		if name, _, ok := strings.Cut(v, "="); ok && name != "" && !isOurs(v) && strings.IndexByte(v, 0) < 0 {
			last[name] = i
		}
	}
	env := make([]string, 0, len(last))
	for i, v := range all {
		name, _, _ := strings.Cut(v, "=")
		if at, ok := last[name]; ok && at == i {
			env = append(env, v)
		}
	}
	return env
}

func isOurs(variable string) bool {
	for _, prefix := range ours {
		if strings.HasPrefix(variable, prefix) {
			return true
		}
	}
	return false
}
