package container

import (
	"os"
	"path/filepath"
	"testing"
)

// builder makes images with the programs that e.base has.
type builder struct {
	*testing.T
	e        *engine
	programs string // their directory
}

var programs = [...]string{"agent-init", "agent-init-exporter"}

func newBuilder(t *testing.T, e *engine) *builder {
	t.Helper()
	b := &builder{t, e, t.TempDir()}
	holder := e.name(t)
	e.must(t, "create", "--name", holder, e.base)
	for _, p := range programs {
		e.must(t, "cp", holder+":/usr/local/bin/"+p, filepath.Join(b.programs, p))
	}
	return b
}

// image is e.base with further lines of a Dockerfile.
func (b *builder) image(lines string) string {
	b.Helper()
	return b.from(b.e.base, lines)
}

// from is another image with further lines.
func (b *builder) from(image, lines string) string {
	b.Helper()
	dir, name := b.TempDir(), b.e.unique(b.T)
	b.write(filepath.Join(dir, "Dockerfile"), []byte("FROM "+image+"\n"+lines))
	b.e.must(b.T, "build", "-q", "--network=none", "-t", name, dir)
	b.Cleanup(func() { b.e.docker("image", "rm", "-f", name) })
	return name
}

// base tries to make a base image out of another by Dockerfile.base.
func (b *builder) base(image string) (name string, r result) {
	b.Helper()
	dir := b.TempDir()
	for _, p := range programs {
		data, err := os.ReadFile(filepath.Join(b.programs, p))
		if err != nil {
			b.Fatal(err)
		}
		b.write(filepath.Join(dir, "bin", p), data)
	}
	for _, file := range []string{"Dockerfile.base", "images/agent.sh", "images/shell.bash"} {
		data, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			b.Fatal(err)
		}
		b.write(filepath.Join(dir, file), data)
	}
	name = b.e.unique(b.T)
	r = b.e.docker("build", "-q", "--network=none", "-t", name, "-f", "../../Dockerfile.base", "--target=debian", "--build-arg=DEBIAN="+image, dir)
	b.Cleanup(func() { b.e.docker("image", "rm", "-f", name) })
	return name, r
}

func (b *builder) write(path string, data []byte) {
	b.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o755); err != nil {
		b.Fatal(err)
	}
}
