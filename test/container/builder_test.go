package container

import (
	"os"
	"path/filepath"
	"testing"
)

// builder makes images with the agent-init that e.base has.
type builder struct {
	*testing.T
	e       *engine
	program string // its path
}

func newBuilder(t *testing.T, e *engine) *builder {
	t.Helper()
	b := &builder{t, e, filepath.Join(t.TempDir(), "agent-init")}
	holder := e.name(t)
	e.must(t, "create", "--name", holder, e.base)
	e.must(t, "cp", holder+":/usr/local/bin/agent-init", b.program)
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
	for _, file := range []string{"Dockerfile.base", "images/agent.sh", "images/shell.bash"} {
		b.copy(filepath.Join("../..", file), filepath.Join(dir, file))
	}
	b.copy(b.program, filepath.Join(dir, "bin/agent-init"))
	name = b.e.unique(b.T)
	r = b.e.docker("build", "-q", "--network=none", "-t", name, "-f", "../../Dockerfile.base", "--target=debian", "--build-arg=DEBIAN="+image, dir)
	b.Cleanup(func() { b.e.docker("image", "rm", "-f", name) })
	return name, r
}

func (b *builder) copy(from, to string) {
	b.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		b.Fatal(err)
	}
	b.write(to, data)
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
