// Package privdrop chooses who an agent is, and says what becoming that takes.
//
// Lookup chooses the identity, and a Spec is what package drop does with it, in a process of its own. Harden is for the
// processes that stay privileged: they keep the capabilities that they use, and no others.
package privdrop

import "encoding/json"

// Identity is who a process runs as.
type Identity struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"` // supplementary groups
	Name   string   `json:"name"`
	Home   string   `json:"home"`
	Shell  string   `json:"shell"`
}

// Spec is what drop.Exec does. It travels to the re-executed process as JSON.
type Spec struct {
	Identity Identity `json:"identity"`

	// Argv is the command. Argv[0] is searched in the PATH of Env, as the identity, unless it has a slash.
	Argv []string `json:"argv"`

	Env   []string `json:"env"`             // without our variables, and with those of Identity in their place
	Dir   string   `json:"dir,omitempty"`   // entered as the identity; empty means that of the caller
	Umask uint32   `json:"umask,omitempty"` // 0 means 022

	// DenyUserNS refuses new namespaces of every kind, and mounts. They stay
	// usable otherwise, since tools build their own sandboxes from them.
	DenyUserNS bool `json:"deny_userns,omitempty"`

	// DenyPing refuses the datagram sockets of ICMP (icmp(7)), for where no packet
	// filter can tell what they send and get from what the kernel itself does.
	DenyPing bool `json:"deny_ping,omitempty"`

	// Nice is how far the command stands back from others where processors are short (nice(2)); 0: as far as the caller does.
	// It can't be less than the caller's, and neither the command nor what it starts can lower it.
	Nice int `json:"nice,omitempty"`

	KeepFDs int `json:"keep_fds,omitempty"` // how many descriptors from 3 on the command gets: all others above 2 are closed

	// ParentPID, if not 0, is the pid of the process that started this one: the command is killed
	// when that ends, if it held CAP_KILL. PID 1's children are killed by the kernel anyway.
	ParentPID int `json:"parent_pid,omitempty"`
}

// bare is Spec without its methods, for encoding/json to work on.
type bare Spec

// wire is Spec as JSON has it. Arguments, variables and paths are bytes to the
// kernel, and JSON has only text: it would replace what is not UTF-8.
type wire struct {
	bare
	Argv [][]byte `json:"argv"`
	Env  [][]byte `json:"env"`
	Dir  []byte   `json:"dir,omitempty"`
}

// MarshalJSON encodes s without loss.
func (s Spec) MarshalJSON() ([]byte, error) {
	return json.Marshal(wire{bare(s), convert[[]byte](s.Argv), convert[[]byte](s.Env), []byte(s.Dir)})
}

// UnmarshalJSON decodes what MarshalJSON has encoded.
func (s *Spec) UnmarshalJSON(text []byte) error {
	var w wire
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	*s = Spec(w.bare)
	s.Argv, s.Env, s.Dir = convert[string](w.Argv), convert[string](w.Env), string(w.Dir)
	return nil
}

func convert[To, From string | []byte](list []From) []To {
	out := make([]To, len(list))
	for i, v := range list {
		out[i] = To(v)
	}
	return out
}
