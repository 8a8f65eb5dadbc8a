package lab

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const module = "github.com/agent-init/agent-init"

// The builders run once per process; what they return never changes after.
var (
	buildTools = sync.OnceValues(func() (string, error) {
		return build("internal/lab/cmd/labbox", "internal/lab/cmd/poke")
	})
	buildAgentInit = sync.OnceValues(func() (string, error) {
		dir, err := build("cmd/agent-init")
		return filepath.Join(dir, "agent-init"), err
	})
)

// Binary returns the path of the agent-init binary under test: the one that
// AGENT_INIT_BIN names, else one built from this module, once per process.
func Binary(tb TB) string {
	tb.Helper()
	if path := os.Getenv("AGENT_INIT_BIN"); path != "" {
		return path
	}
	path, err := buildAgentInit()
	if err != nil {
		tb.Fatalf("lab: %v", err)
	}
	return path
}

// build compiles packages of this module into a cache directory, where the linker
// finds its last result, and returns the directory. Each checkout has its own: what
// another one builds is not under test here. Root's own cache is below a home that
// others, as whom the tests run programs too, can't enter.
func build(packages ...string) (string, error) {
	cache := "/var/cache"
	if os.Geteuid() != 0 || os.Getenv("XDG_CACHE_HOME") != "" {
		var err error
		if cache, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("find a directory to build in: %w", err)
		}
	}
	root, err := checkout()
	if err != nil {
		return "", err
	}
	name := fnv.New64a()
	name.Write([]byte(root))
	dir := filepath.Join(cache, "agent-init-lab", fmt.Sprintf("%016x", name.Sum64()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make build directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("open build lock: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock build directory: %w", err)
	}
	// Without symbols: a quarter less to be mapped at each of thousands of starts.
	args := []string{"build", "-trimpath", "-ldflags=-s -w", "-o", dir + "/"}
	for _, p := range packages {
		args = append(args, module+"/"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %v: %v\n%s", packages, err, out)
	}
	return dir, nil
}

// checkout is the directory of this module's go.mod, above the working directory. Modules inside of it have their own.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for {
		if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && strings.HasPrefix(string(data), "module "+module+"\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the module: no go.mod of %s above the working directory", module)
		}
		dir = filepath.Dir(dir)
	}
}

// linkFile gives dst the content of src at once: a later build that replaces
// src doesn't change it.
func linkFile(src, dst string) error {
	if os.Link(src, dst) == nil {
		return nil
	}
	data, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	return os.WriteFile(dst, data, 0o755)
}
