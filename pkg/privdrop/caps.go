package privdrop

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// lastCap is the highest number that a capability can have: the kernel's sets
// are 64 bits wide.
const lastCap = 63

// capabilities are those that messages of this package can name, with what
// agent-init needs them for.
var capabilities = map[int]struct{ name, doing string }{
	unix.CAP_CHOWN:     {"CHOWN", "make the agent's home directory its own"},
	unix.CAP_KILL:      {"KILL", "signal the agent"},
	unix.CAP_SETGID:    {"SETGID", "set the agent's groups"},
	unix.CAP_SETUID:    {"SETUID", "set the agent's uid"},
	unix.CAP_SETPCAP:   {"SETPCAP", "take all capabilities from the agent for good"},
	unix.CAP_NET_ADMIN: {"NET_ADMIN", "confine the network"},
	unix.CAP_NET_RAW:   {"NET_RAW", "use iptables"},
}

// missing is the error for a capability.
func missing(n int) *CapabilityError {
	c, ok := capabilities[n]
	if !ok {
		c.name, c.doing = fmt.Sprintf("number %d", n), "run"
	}
	return &CapabilityError{Capability: c.name, Doing: c.doing}
}

// capSets are the three sets of capget(2), of the calling thread.
type capSets struct{ effective, permitted, inheritable uint64 }

func getCaps() (capSets, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return capSets{}, fmt.Errorf("read capabilities: %w", err)
	}
	join := func(low, high uint32) uint64 { return uint64(low) | uint64(high)<<32 }
	return capSets{
		effective:   join(data[0].Effective, data[1].Effective),
		permitted:   join(data[0].Permitted, data[1].Permitted),
		inheritable: join(data[0].Inheritable, data[1].Inheritable),
	}, nil
}

// capData is what capset(2) takes.
func (c capSets) data() *[2]unix.CapUserData {
	return &[2]unix.CapUserData{
		{Effective: uint32(c.effective), Permitted: uint32(c.permitted), Inheritable: uint32(c.inheritable)},
		{Effective: uint32(c.effective >> 32), Permitted: uint32(c.permitted >> 32), Inheritable: uint32(c.inheritable >> 32)},
	}
}

// Require returns a *CapabilityError for the first capability of need
// (unix.CAP_… numbers) that the calling thread lacks. For what Exec needs, see
// ExecCapabilities.
func Require(need ...int) error {
	have, err := getCaps()
	if err != nil {
		return err
	}
	for _, c := range need {
		if have.effective&(1<<c) == 0 {
			return missing(c)
		}
	}
	return nil
}

// ExecCapabilities are the capabilities that Exec needs: SETUID, SETGID and
// SETPCAP.
func ExecCapabilities() []int {
	return []int{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP}
}
