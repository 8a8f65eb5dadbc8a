package xtables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// xtTools are the programs of iptables-legacy, which has kernel tables of its own. The variant of iptables on nf_tables
// is not used: the nftables backend speaks to nf_tables by itself.
type xtTools struct {
	version string
	restore map[plan.Family]string
	save    map[plan.Family]string
	env     []string
	tables  []string // to be asked for one by one, where the kernel doesn't list them
	run     Runner
}

// xtDirs are where programs are looked for. What an environment says may be anyone's idea.
func xtDirs() []string { return []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"} }

const (
	xtTimeout = 20 * time.Second // of a program; the longest part by far is to wait
	xtWait    = "10"             // seconds, for the lock of another iptables
	maxSaid   = 500              // bytes of a program's complaints that an error tells
)

// errNone begins the error about a program that is not installed.
var errNone = errors.New("there is no")

// findTools returns the programs that are named iptables-legacy, or else the plain ones if they are of that variant.
// lock is the lock file to use, or "".
func findTools(dirs []string, lock string, run Runner) (xtTools, error) {
	if run == nil {
		return xtTools{}, errors.New("find iptables-legacy: there is no way to run programs")
	}
	base := xtTools{env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}, run: run}
	if lock != "" {
		base.env = append(base.env, "XTABLES_LOCKFILE="+lock)
	}
	t, err := toolsNamed(dirs, "-legacy", base)
	if errors.Is(err, errNone) {
		if plain, plainErr := toolsNamed(dirs, "", base); !errors.Is(plainErr, errNone) {
			t, err = plain, plainErr
		}
	}
	if err != nil {
		return t, fmt.Errorf("find iptables-legacy: %w: the image lacks the package iptables, or a part of it: %w", nfnetlink.ErrUnsupported, err)
	}
	return t, nil
}

func toolsNamed(dirs []string, suffix string, t xtTools) (xtTools, error) {
	t.restore, t.save = map[plan.Family]string{}, map[plan.Family]string{}
	for _, f := range plan.Families() {
		name := map[plan.Family]string{plan.IPv4: "iptables", plan.IPv6: "ip6tables"}[f] + suffix
		var err error
		if t.restore[f], err = findProgram(dirs, name+"-restore"); err != nil {
			return t, err
		}
		if t.save[f], err = findProgram(dirs, name+"-save"); err != nil {
			return t, err
		}
		out, err := t.call(t.restore[f], nil, "--version")
		if err != nil {
			return t, err
		}
		var ok bool
		if t.version, ok = parseVersion(string(out)); !ok {
			return t, fmt.Errorf("%s is not of iptables-legacy: it says %.100q", t.restore[f], strings.TrimSpace(string(out)))
		}
	}
	return t, nil
}

// parseVersion parses what programs of iptables-legacy say of themselves, such as "iptables-restore v1.8.9 (legacy)".
// Before 1.8 there was one variant, without a word for it.
func parseVersion(s string) (version string, ok bool) {
	m := regexp.MustCompile(`v(\d+\.\d+(?:\.\d+)?)(?: \((\w+)\))?`).FindStringSubmatch(s)
	if m == nil || m[2] != "" && m[2] != "legacy" {
		return "", false
	}
	return m[1], true
}

// findProgram looks for a program in dirs. One that others than root could change is none of ours to run.
func findProgram(dirs []string, name string) (string, error) {
	for _, d := range dirs {
		path := filepath.Join(d, name)
		real, err := filepath.EvalSymlinks(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		var st unix.Stat_t
		if err := unix.Stat(real, &st); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		if st.Uid != 0 || st.Mode&0o022 != 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
			return "", fmt.Errorf("%s (%s) can be written by others than root", path, real)
		}
		return path, nil
	}
	return "", fmt.Errorf("%w %s in %v", errNone, name, dirs)
}

// call runs one of the programs. The error quotes it.
func (t xtTools) call(path string, stdin []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), xtTimeout)
	defer cancel()
	out, complaints, err := t.run(ctx, Program{Path: path, Args: args, Env: t.env, Stdin: stdin})
	if err == nil {
		return out, nil
	}
	err = fmt.Errorf("%s: %w", path, err)
	if said := strings.Join(strings.Fields(string(complaints)), " "); said != "" {
		err = fmt.Errorf("%w: %s", err, said[:min(len(said), maxSaid)])
	}
	return nil, err
}

// load has the kernel take text, one transaction for each table in it, and keep what text doesn't name.
func (t xtTools) load(f plan.Family, text string) error {
	_, err := t.call(t.restore[f], []byte(text), "--noflush", "-w", xtWait)
	if err != nil {
		return fmt.Errorf("%w%s", err, blamed(text, err))
	}
	return nil
}

func (t xtTools) read(f plan.Family) (xtLive, error) {
	calls := [][]string{nil} // one tells of every table
	for i, name := range t.tables {
		calls = append(calls[:i], []string{"-t", name})
	}
	var out []byte
	for _, args := range calls {
		text, err := t.call(t.save[f], nil, args...)
		if err != nil {
			return nil, err
		}
		out = append(out, text...)
	}
	live, err := parseSave(string(out))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.save[f], err)
	}
	return live, nil
}

// Program is a program that a backend wants run.
type Program struct {
	Path  string   // absolute
	Args  []string // without the name
	Env   []string // the whole environment
	Stdin []byte
}

// Runner runs a program to its end and returns what it wrote. The error says how
// it ended, if not with status 0. When ctx ends, the program is killed.
type Runner func(ctx context.Context, p Program) (stdout, stderr []byte, err error)
