package scorecard

// Other are attacks of the catalogue that no container can try by itself, and what
// that takes instead.
type Other struct {
	IDs []string
	Why string
}

// Elsewhere are the attacks of SECURITY.md's catalogue that are no line of the table.
// Tests of their own try them.
func Elsewhere() []Other {
	return []Other{
		{[]string{"X03"}, "Root writes a file into the workspace."},
		{[]string{"X05", "X06", "X32", "X63", "R13"}, "They are E33 and X31, with changes at moments that only a test can choose."},
		{[]string{"X08", "X16"}, "They are X37 and X01, with a DNS server that plays along, or before agent-init starts."},
		{[]string{"X09", "X10", "X44", "X45", "X47", "X52", "X54", "X55", "X56", "X60"}, "They are against a session, or a person's terminal. Nothing of them is on the network."},
		{[]string{"X12", "X53"}, "They stop or end all that the agent has, the attacker too."},
		{[]string{"X13", "X15"}, "They are about system calls within the container, which an engine's own profile may refuse."},
		{[]string{"X14", "X34", "X42", "X50"}, "Root, the group of a file, a guard or a full disk has to go wrong first."},
		{[]string{"X17", "X58", "X59"}, "They take a container beside a sidecar whose user is root, or the guard's."},
		{[]string{"X18", "X23", "X24", "X26", "X38", "X64"}, "They are against agent-init's service and memory. Nothing leaves the container."},
		{[]string{"X21"}, "It takes an allowed server that helps."},
		{[]string{"X22"}, "It is below IP, where every host asks for its neighbours."},
		{[]string{"X27", "X48"}, "They take a self-test of root's."},
		{[]string{"X29"}, "It takes an engine that ends while its containers live on."},
		{[]string{"X61", "X62"}, "They are against a person's machine, from which the container is started."},
		{[]string{"K08", "K09", "K10"}, "They take a server that plays along, or a limit."},
		{[]string{"X35"}, "It takes a policy that allows a block of addresses in which others are wrapped."},
	}
}
