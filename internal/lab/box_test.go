package lab_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

func TestKernelRun(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	b := l.NewBox(lab.BoxOptions{Files: []lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte("ok.test\n"), Mode: 0o600}},
		Hosts: []string{"10.9.9.9 host.docker.internal"}, Env: []string{"COLOR=red"}, Tmpfs: []string{"/scratch"}})
	tests := []struct {
		script, stdout string
		code           int
	}{
		{"echo $$; id -u; hostname", "1\n0\nbox0\n", 0},
		{"exit 42", "", 42},
		{"cat", "from stdin", 0},
		{"grep -c . /etc/passwd; stat -c '%a %U' /etc/agent-init/allowlist.txt /home/agent", "4\n600 root\n750 agent\n", 0},
		{"grep CapBnd /proc/self/status; grep NoNewPrivs /proc/self/status", "CapBnd:\t00000000000011c0\nNoNewPrivs:\t0\n", 0},
		{"echo x > /proc/sys/net/ipv4/ip_forward", "", 2},
		{"mv /etc/hosts /etc/hosts2 2>/dev/null || echo busy", "busy\n", 0},
		{"grep host.docker /etc/hosts; head -1 /etc/resolv.conf", "10.9.9.9 host.docker.internal\nnameserver 192.0.2.53\n", 0},
		{"echo new > /usr/bin/new && echo $COLOR; ls -d /lost+found /tmp/agent-init-lab-* 2>/dev/null | grep tmp", "red\n", 1},
		{"set -- /proc/[0-9]*; echo $#; ls /sys/class/net; touch /scratch/x", "1\neth0\nlo\n", 0},
		{"ls /proc/self/fd | wc -l", "4\n", 0}, // 0–2, and ls's own
	}
	for _, tt := range tests {
		r := b.Run(lab.Cmd{Args: []string{"/bin/sh", "-c", tt.script}, Stdin: "from stdin"})
		if r.Stdout != tt.stdout || r.Code != tt.code {
			t.Errorf("%s: want %d %q: %s", tt.script, tt.code, tt.stdout, r)
		}
	}
	if _, err := os.Stat("/usr/bin/new"); err == nil {
		t.Error("the box wrote to the machine")
	}
	if r := b.Run(lab.Cmd{Args: []string{"sleep", "100"}, Timeout: 50 * time.Millisecond}); !r.TimedOut || r.Code != 137 {
		t.Errorf("timeout: %s", r)
	}
	if r := b.Run(lab.Cmd{Args: []string{"sh", "-c", "id -u; id -g; grep CapEff /proc/self/status"}, UID: lab.AgentUID}); r.Stdout != "1000\n1000\nCapEff:\t0000000000000000\n" {
		t.Errorf("as agent: %s", r)
	}
}

func TestKernelPrivilegePokes(t *testing.T) {
	_, b := open(t, lab.BoxOptions{})
	tests := []struct {
		uid   uint32
		args  []string
		ok    bool
		errno string
	}{
		{lab.AgentUID, []string{"socket", "packet", "raw", "0"}, false, "EPERM"},
		{lab.AgentUID, []string{"socket", "inet", "raw", "icmp"}, false, "EPERM"},
		{lab.AgentUID, []string{"socket", "inet", "stream", "mptcp"}, true, ""},
		{lab.AgentUID, []string{"tcp", "-opt", "1:36:7", "1.1.1.1:443"}, false, "EPERM"},
		{0, []string{"tcp", "-opt", "1:36:7", "1.1.1.1:443"}, true, ""},
		{lab.AgentUID, []string{"setuid", "0"}, false, "EPERM"},
		{0, []string{"setuid", "1000"}, true, ""},
		{lab.AgentUID, []string{"kill", "1", "TERM"}, false, "EPERM"},
		{lab.AgentUID, []string{"ptrace", "1"}, false, "EPERM"},
		{lab.AgentUID, []string{"vmwrite", "1"}, false, "EPERM"},
		{lab.AgentUID, []string{"read", "/proc/1/environ"}, false, "EACCES"},
		{lab.AgentUID, []string{"write", "/etc/resolv.conf"}, false, "EACCES"},
		{lab.AgentUID, []string{"unix", "@nobody"}, false, "ECONNREFUSED"},
		{lab.AgentUID, []string{"unshare", "user,net", "nft"}, true, ""},
		{lab.AgentUID, []string{"setns", "/proc/1/ns/net", "self"}, false, "EACCES"},
		{lab.AgentUID, []string{"syscall", "reboot"}, false, "EPERM"},
		{lab.AgentUID, []string{"nft"}, false, "EPERM"},
		{0, []string{"nft"}, true, ""},
		{0, []string{"as", "1000", "setuid", "0"}, true, ""},
		{lab.AgentUID, []string{"self"}, true, ""},
		{lab.AgentUID, []string{"tcp", "127.0.0.1:1"}, false, "ECONNREFUSED"},
		{lab.AgentUID, []string{"tcp", "-mptcp", "-send", "x", "1.1.1.1:7"}, true, ""},
		{lab.AgentUID, []string{"tcp", "-hold", "300ms", "1.1.1.1:7"}, true, ""},
		{lab.AgentUID, []string{"loop", "-n", "50", "-c", "5", "-name", "ok.test", ":443"}, true, ""},
		{lab.AgentUID, []string{"idle", "-n", "20", "-hold", "10ms", "1.1.1.1:7"}, true, ""},
		{lab.AgentUID, []string{"flood", "-n", "100", "1.1.1.1:7"}, true, ""},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d %v", tt.uid, tt.args), func(t *testing.T) {
			if p := b.Poke(tt.uid, tt.args...); p.OK != tt.ok || p.Errno != tt.errno {
				t.Errorf("want ok=%t %s: %s", tt.ok, tt.errno, p)
			}
		})
	}
}
