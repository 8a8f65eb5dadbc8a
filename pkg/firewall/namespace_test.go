package firewall

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/vishvananda/netlink"
)

func TestKernelCheckNamespace(t *testing.T) {
	if os.Getenv(inside) == "" && os.Geteuid() == 0 {
		// The namespace that tests start in may be the machine's own, which
		// is looked at and not touched.
		if _, err := os.Stat("/proc/sys/net/core/netdev_max_backlog"); err == nil {
			if err := CheckNamespace(true); !errors.Is(err, nfnetlink.ErrUnsupported) {
				t.Errorf("in the machine's own namespace: %v", err)
			}
		}
	}
	if !inNamespace(t) {
		return
	}
	newLab(t)
	check := func(what string, shared bool, want string) {
		t.Helper()
		err := CheckNamespace(shared)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case want != "" && (!errors.Is(err, nfnetlink.ErrUnsupported) || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, without %q", what, err, want)
		}
	}
	must(t, nftScript(t, engineRules))
	lis, err := net.Listen("tcp4", "127.0.0.11:0")
	must(t, err)
	defer lis.Close()
	check("the engine's DNS", false, "")

	foreign, err := net.Listen("tcp6", "[::]:8125")
	must(t, err)
	check("a listener", false, "listens on [::]:8125")
	check("a listener in a pod", true, "")
	foreign.Close()

	for _, chain := range []string{"DOCKER", "DOCKER-USER", "KUBE-SERVICES", "CNI-FORWARD"} {
		must(t, nftScript(t, "add table ip x\nadd chain ip x "+chain))
		check(chain, true, chain)
		must(t, nftScript(t, "delete table ip x"))
	}
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	check("a bridge", true, "br0")
}

// Without NET_ADMIN, or where a kernel speaks no netfilter, the error says so.
func TestKernelNoPermission(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	if os.Getenv("FIREWALL_TEST_DROPPED") == "1" {
		_, err := Open(t.Context(), Options{Owner: true})
		if !errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), "NET_ADMIN") {
			t.Errorf("open: %v", err)
		}
		_, err = OpenDropLog(group)
		if !errors.Is(err, ErrPermission) {
			t.Errorf("open drop log: %v", err)
		}
		return
	}
	exe := filepath.Join(t.TempDir(), "test")
	b, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(exe, b, 0o755))
	for dir := filepath.Dir(exe); dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	cmd := exec.Command(exe, "-test.run=^TestKernelNoPermission$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "FIREWALL_TEST_DROPPED=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
