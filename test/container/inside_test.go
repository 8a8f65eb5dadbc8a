package container

import "testing"

// testInside holds what docs/agents says of sandboxes in the container: who decides whether the agent may make namespaces.
func testInside(t *testing.T, e *engine) {
	unconfined := []string{"--security-opt=seccomp=unconfined"}
	for _, test := range []struct {
		name    string
		options []string
		policy  string
		works   bool
	}{
		{"docker-profile", nil, "user_namespaces: true\n", false},
		{"unconfined", unconfined, "", true},
		{"unconfined-and-forbidden", unconfined, "user_namespaces: false\n", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			policy := mounts(t, map[string]string{"/etc/agent-init/policy.yaml": test.policy})
			r := e.docker(args([]string{"run", "--name", e.name(t), "-e", "AGENT_INIT_SELFTEST=off"}, privileges(), test.options, policy,
				[]string{e.base, "sh", "-c", "echo started; unshare -Ur true && echo made a namespace"})...)
			if want := "started\n"; r.stdout != want && r.stdout != want+"made a namespace\n" {
				t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			if works := r.code == 0; works != test.works {
				t.Errorf("a namespace can be made: %v, want %v\n%s%s", works, test.works, r.stdout, r.stderr)
			}
		})
	}
}
