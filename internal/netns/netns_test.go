package netns

import (
	"os"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
)

func link(t *testing.T) string {
	t.Helper()
	s, err := os.Readlink(own)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestKernelEnter(t *testing.T) {
	mustrun.Root(t)
	outside := link(t)
	t.Run("inside", func(t *testing.T) {
		Enter(t)
		if link(t) == outside {
			t.Error("nothing was entered")
		}
		// Others are where they were.
		elsewhere := make(chan string)
		go func() {
			s, _ := os.Readlink(own)
			elsewhere <- s
		}()
		if s := <-elsewhere; s != outside {
			t.Errorf("another goroutine is in %s, and was in %s", s, outside)
		}
	})
}

func TestKernelDo(t *testing.T) {
	mustrun.Root(t)
	ns, err := New()
	if err != nil {
		t.Fatal(err)
	}
	outside := link(t)
	var first, second string
	for _, to := range []*string{&first, &second} {
		if err := ns.Do(func() (err error) { *to, err = os.Readlink(own); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if first == outside || first != second || link(t) != outside {
		t.Errorf("went from %s into %s and %s, and is in %s", outside, first, second, link(t))
	}
	if err := ns.Close(); err != nil {
		t.Error(err)
	}
	if err := ns.Do(func() error { return nil }); err == nil {
		t.Error("a closed namespace was entered")
	}
}
