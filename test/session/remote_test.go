package session

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// sshd starts a server on the loopback of the box, which has no other network, for root
// with a key, and returns what a client is to be started with.
func (r *rig) sshd() string {
	r.Helper()
	server := mustrun.Tool(r.T, "sshd")
	mustrun.Tool(r.T, "ssh")
	key, host := filepath.Join(r.dir, "key"), filepath.Join(r.dir, "host")
	for _, file := range []string{key, host} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file).CombinedOutput(); err != nil {
			r.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	config := filepath.Join(r.dir, "sshd_config")
	must(r.T, os.WriteFile(config, fmt.Appendf(nil, "ListenAddress 127.0.0.1:2222\nHostKey %s\nAuthorizedKeysFile %s.pub\nStrictModes no\nPidFile none\nUsePAM no\nPermitRootLogin yes\n", host, key), 0o600))
	line := r.enter("root", "sh", "-c", "mkdir -p /run/sshd && ip link set lo up && exec "+server+" -D -e -f "+config)
	daemon := exec.Command(line[0], line[1:]...)
	must(r.T, daemon.Start())
	r.Cleanup(func() { _ = daemon.Process.Kill(); _ = daemon.Wait() })
	ssh := strings.Join(r.enter("root"), " ") + " env -i PATH=/usr/bin:/bin %s ssh -F none -p 2222 -i " + key +
		" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o SendEnv=LC_ALL %s root@127.0.0.1 " + r.binary + " attach"
	probe := r.enter("root", "sh", "-c", "ssh -F none -p 2222 -i "+key+" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null root@127.0.0.1 true")
	r.eventually("sshd does not answer", func() bool { return exec.Command(probe[0], probe[1:]...).Run() == nil })
	return ssh
}

// Over ssh there may be no UTF-8 locale, a terminal that knows no escape sequences, or a
// very small one; and ssh's own way to hang up ends the client alone.
func TestLabSessionOverSSH(t *testing.T) {
	r := newRig(t)
	p := r.start(80, 24, "", prompt)
	r.shows(p, ">")
	r.line(p, `printf '\033[31mrot\033[m grün 你好\n'`)
	r.shows(p, "rot grün 你好")
	ssh := r.sshd()

	a := r.pane(80, 24, fmt.Sprintf(ssh, "TERM=xterm-256color LC_ALL=C", "-t"))
	r.shows(a, "rot grün 你好")
	r.eventually("it looks otherwise", func() bool { return r.coloured(a) == r.coloured(p) })
	r.line(a, "locale 2>/dev/null | head -1; echo über ssh")
	r.shows(p, "über ssh")
	r.keys(a, "C-]", "d")
	r.shows(a, "detached from window 0")

	small := r.pane(20, 5, fmt.Sprintf(ssh, "TERM=dumb", "-t"))
	r.shows(small, "über ssh")
	r.line(small, "stty size")
	r.shows(small, "5 20")
	r.shows(p, "5 20")
	r.line(small, `printf '\033[32mgreen\033[m and \033]0;a title\007text\n'`)
	r.shows(small, "green and text")
	r.keys(small, "Enter", "~", ".") // ssh's hang-up
	r.shows(small, "[exit 255]")
	r.eventually("the client stays", func() bool { return strings.Count(r.must("root", "sessions"), "attached:") == 1 })

	// Without a terminal there is nothing to attach, and it is said what to do.
	none := r.pane(80, 24, fmt.Sprintf(ssh, "TERM=xterm", "-T"))
	r.shows(none, "attach needs a terminal")
	r.shows(none, "ssh -t")
	r.shows(none, "[exit 64]")
	r.line(p, "exit 5")
	r.shows(p, "[exit 5]")
}
