package gvisor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// image is what the container sees over the root filesystem: path to content,
// root's and readable by all.
type image map[string]string

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group  = "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n"
)

// runCaps are the capabilities that the documentation asks for inside gVisor.
func runCaps() []string { return []string{"NET_ADMIN", "NET_RAW", "SETUID", "SETGID", "SETPCAP"} }

// writeBundle makes an OCI bundle (opencontainers/runtime-spec) for args in dir.
// The root filesystem is shared and stays as it is: runsc keeps changes in memory.
func writeBundle(t *testing.T, dir string, ca, netns string, files image, caps, args []string) {
	t.Helper()
	root := os.Getenv("AGENT_INIT_GVISOR_ROOT")
	mounts := []map[string]any{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
		{"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": []string{"nosuid", "nodev", "noexec", "mode=1777"}},
		{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": []string{"ro"}},
	}
	bind := func(source, target string) {
		mounts = append(mounts, map[string]any{"destination": target, "type": "bind", "source": source, "options": []string{"bind", "ro"}})
	}
	bind(lab.Binary(t), "/usr/local/bin/agent-init")
	bind(os.Getenv("AGENT_INIT_POKE"), "/usr/local/bin/poke")
	bind(ca, "/etc/ssl/certs/ca-certificates.crt")
	for name, content := range map[string]string{
		"passwd": passwd, "group": group, "hosts": "127.0.0.1\tlocalhost\n::1\tlocalhost\n",
		"resolv.conf": "nameserver " + lab.Upstream4.String() + "\nnameserver " + lab.Upstream6.String() + "\n",
	} {
		if _, ok := files["/etc/"+name]; !ok {
			files["/etc/"+name] = content
		}
	}
	conf := filepath.Join(dir, "files")
	for path, content := range files {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(conf, path)), 0o755))
		must(t, os.WriteFile(filepath.Join(conf, path), []byte(content), 0o644))
		if !strings.HasPrefix(path, policyDir) {
			bind(filepath.Join(conf, path), path)
		}
	}
	must(t, os.MkdirAll(filepath.Join(conf, policyDir), 0o755))
	bind(filepath.Join(conf, policyDir), policyDir)

	var held []string
	for _, c := range caps {
		held = append(held, "CAP_"+c)
	}
	spec := map[string]any{
		"ociVersion": "1.0.0",
		"hostname":   "box",
		"root":       map[string]any{"path": root, "readonly": false},
		"mounts":     mounts,
		"process": map[string]any{
			"cwd": "/", "args": args, "user": map[string]any{"uid": 0, "gid": 0}, "noNewPrivileges": true,
			"env":          []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
			"capabilities": map[string]any{"bounding": held, "effective": held, "permitted": held},
			"rlimits":      []map[string]any{{"type": "RLIMIT_NOFILE", "hard": 65536, "soft": 65536}},
		},
		"linux": map[string]any{"namespaces": []map[string]any{
			{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "network", "path": netns},
		}},
	}
	data, err := json.Marshal(spec)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644))
}
