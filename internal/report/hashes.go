package report

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/policy"
)

const (
	maxHashed = 200 // files
	osRelease = "/etc/os-release"
)

// Hashes are of what can be seen from inside. Only the engine outside knows the digest of the image.
type Hashes struct {
	Program *Hashed  `json:"program,omitempty"` // agent-init itself, if it is this container's
	Version string   `json:"version"`
	System  string   `json:"system,omitempty"` // of the image, as it calls itself
	Rules   string   `json:"rules,omitempty"`  // SHA-256 of the entries in force, grants aside, each with a line break
	Files   []Hashed `json:"files"`            // of the policy
}

// Hashed is a file with its SHA-256.
type Hashed struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

func hashesOf(s *source, version string) Hashes {
	h := Hashes{Version: version, Files: []Hashed{}}
	if s.policy != nil {
		h.Rules = hashRules(s.policy)
	}
	if s.copied || s.state == nil {
		return h // this machine's files say nothing of the container
	}
	if f, err := hashFile(stage.Self); err == nil {
		if path, err := os.Readlink(stage.Self); err == nil {
			f.Path = path
		}
		h.Program = &f
	}
	h.System = systemOf(osRelease)
	for _, path := range append(policyFiles(s.policyDir), state.SavedFile) {
		if f, err := hashFile(path); err == nil && len(h.Files) < maxHashed {
			h.Files = append(h.Files, f)
		}
	}
	return h
}

// hashRules is over what is in force, whichever files it came from. What people granted for a time is not in it.
func hashRules(p *policy.Policy) string {
	sum := sha256.New()
	for rule := range p.Rules() {
		if !strings.HasPrefix(rule.Source.File, grant.Prefix) {
			fmt.Fprintln(sum, rule.String())
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func hashFile(path string) (Hashed, error) {
	f, err := os.Open(path)
	if err != nil {
		return Hashed{}, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	return Hashed{Path: path, SHA256: hex.EncodeToString(sum.Sum(nil)), Size: n}, err
}

// policyFiles are the regular files of a policy's directory that a policy is made of.
func policyFiles(dir string) (list []string) {
	if dir == "" {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && slices.Contains([]string{".txt", ".yaml"}, filepath.Ext(path)) {
			list = append(list, path)
		}
		return nil // what can't be read is left out
	})
	slices.Sort(list)
	return list
}

// systemOf is PRETTY_NAME of os-release(5).
func systemOf(path string) string {
	data, _ := os.ReadFile(path)
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return ""
}
