package keeper

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// TestPublishFiles: what routes have for one file stands in it once each, behind the head, and goes with them.
func TestPublishFiles(t *testing.T) {
	of := func(name string, files ...route.File) route.Route { return route.Route{Name: name, Files: files} }
	git := func(text string) route.File { return route.File{Name: "gitconfig", Head: "[head {dir}]\n", Text: text} }
	dir := t.TempDir()
	p := &policy.Policy{}
	p.Settings.Broker = []route.Route{of("a", git("{base} {token}\n")), of("none"), of("b", git("{base}\n"), route.File{Name: "npmrc", Text: "x\n"}), of("c", route.File{Name: "npmrc", Text: "y\n"})}
	k := &brokerKeeper{book: newBook(nil, p), token: "drawn", sockets: &brokerSockets{port: 4321}}
	k.base = &base{publisher: &publisher{dir: state.Dir(dir)}}
	publish := func() {
		t.Helper()
		if err := k.publishFiles(uint32(os.Getgid())); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	want := "[head " + dir + "]\nhttp://127.0.0.1:4321/a drawn\nhttp://127.0.0.1:4321/b\n"
	if got, err := os.ReadFile(filepath.Join(dir, "gitconfig")); err != nil || string(got) != want {
		t.Errorf("it has %q, %v", got, err)
	}
	if st, err := os.Stat(filepath.Join(dir, "npmrc")); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("npmrc: %v, %v", st, err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "npmrc")); err != nil || string(got) != "x\n" {
		t.Errorf("a file without a head has %q, %v", got, err)
	}
	p.Settings.Broker = p.Settings.Broker[:2]
	publish()
	if _, err := os.Stat(filepath.Join(dir, "npmrc")); !os.IsNotExist(err) {
		t.Errorf("the file of a route that is none any more: %v", err)
	}
	// Beside --env-file, for the agent in another container.
	given := t.TempDir()
	k.config.EnvFile = filepath.Join(given, "broker.env")
	publish()
	if got, err := os.ReadFile(filepath.Join(given, "gitconfig")); err != nil || string(got) != "[head "+given+"]\nhttp://127.0.0.1:4321/a drawn\n" {
		t.Errorf("it has %q, %v", got, err)
	}
}
