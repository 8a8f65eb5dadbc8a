package scorecard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Subject is an image together with what is to be said of it.
type Subject struct {
	Image
	// VersionFrom is a command of the image's shell that prints the version of what confines; Version is what it printed.
	VersionFrom string `json:"version_from,omitempty"`
	Version     string `json:"version,omitempty"`
	ID          string `json:"image_id,omitempty"`
	// Settings are those of the tool, Promises what its makers say that it does and does not, both in words; Source is where.
	Settings string `json:"settings,omitempty"`
	Promises string `json:"promises,omitempty"`
	Source   string `json:"source,omitempty"`
}

// ReadSubject reads a file such as test/subjects/squid/subject.json. A word that it does not know is an error.
func ReadSubject(file string) (*Subject, error) {
	data, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	s := &Subject{Image: Image{User: "1000"}}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// Identify asks the engine which image it is, and the image which version of a tool it has.
func (s *Subject) Identify() error {
	e := &engine{}
	out, err := e.docker("image", "inspect", "--format", "{{.Id}}", s.Ref)
	if err != nil {
		return err
	}
	s.ID = strings.TrimSpace(out)
	if s.VersionFrom == "" {
		return nil
	}
	out, err = e.docker("run", "--rm", "--network=none", "--entrypoint=sh", s.Ref, "-c", s.VersionFrom)
	s.Version = strings.TrimSpace(out)
	return err
}
