package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/mustrun"
)

// inUserNamespace confines a network of its own from within a user namespace, and
// says what agent-init says of it, and the group of its guard.
const inUserNamespace = `
set -e
mount -t proc proc /proc
for dir in /run /var/log; do mount -t tmpfs tmpfs $dir; done
mkdir /run/policy
agent=$1; user=$2
"$agent" sidecar --config /run/policy --user "$user" >/run/out 2>&1 &
if ! "$agent" wait --timeout 20s >/run/wait 2>&1; then
	wait $! && code=0 || code=$?
	cat /run/out
	exit $code
fi
"$agent" status
"$agent" doctor || true # it has opinions on this container
cat /run/out
for p in /proc/[0-9]*; do case "$(tr '\0' ' ' <$p/cmdline)" in '/proc/self/exe guard '*) sed -n 's/^Gid:/guard of/p' $p/status;; esac; done
`

// TestFewGroups: engines that map few groups. The guard gets one that is drawn, or
// is known by its uid alone, which is said; with none but root's there is no start.
func TestFewGroups(t *testing.T) {
	lab.Require(t)
	const alone = "known by its uid alone"
	for _, c := range []struct {
		groups int
		user   string
		drawn  bool
		code   int
	}{{65536, "1000:1000", true, 0}, {1000, "1000:100", true, 0}, {599, "1000:100", false, 0}, {101, "1000:100", false, 0}, {1, "1000:1000", false, 77}} {
		t.Run(fmt.Sprint(c.groups), func(t *testing.T) {
			cmd := exec.Command("sh", "-c", inUserNamespace, "sh", lab.Binary(t), c.user)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
				UidMappings: []syscall.SysProcIDMap{{Size: 65536}}, GidMappings: []syscall.SysProcIDMap{{Size: c.groups}}, GidMappingsEnableSetgroups: true}
			cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // what the tests are told by variables is no setting of agent-init's
			data, err := cmd.CombinedOutput()
			out := string(data)
			var exit *exec.ExitError
			switch {
			case errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC):
				mustrun.Lacks(t, "can't make a user namespace: %v", err)
			case err != nil && !errors.As(err, &exit):
				t.Fatal(err)
			}
			if cmd.ProcessState.ExitCode() != c.code {
				t.Fatalf("exit code %d, want %d: %s", cmd.ProcessState.ExitCode(), c.code, out)
			}
			if c.code != 0 {
				if !strings.Contains(out, "group 1000") || !strings.Contains(out, "/etc/subgid") {
					t.Errorf("does not say why: %s", out)
				}
				return
			}
			_, of, _ := strings.Cut(out, "guard of")
			gid, err := strconv.Atoi(strings.Fields(of + " none")[0])
			if err != nil || gid == 0 || gid >= c.groups {
				t.Errorf("the guard is in group %d, %v: %s", gid, err, out)
			}
			// In the status, in the log, and of doctor's.
			if n := strings.Count(out, alone); c.drawn && n > 0 || !c.drawn && n != 3 {
				t.Errorf("%q is said %d times: %s", alone, n, out)
			}
		})
	}
}
