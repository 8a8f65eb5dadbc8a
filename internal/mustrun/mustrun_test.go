package mustrun

import (
	"fmt"
	"testing"
)

// fake is a TB that notes how a test would have ended, and ends it as
// testing.T does: by leaving the function.
type fake struct{ ended string }

func (f *fake) Helper() {}

func (f *fake) Fatalf(format string, args ...any) { f.end("failed: "+format, args...) }

func (f *fake) Skipf(format string, args ...any) { f.end("skipped: "+format, args...) }

func (f *fake) end(format string, args ...any) {
	f.ended = fmt.Sprintf(format, args...)
	panic(f)
}

func ended(fn func(TB)) (how string) {
	f := &fake{}
	defer func() {
		if r := recover(); r != nil && r != f {
			panic(r)
		}
		how = f.ended
	}()
	fn(f)
	return
}

func TestLacks(t *testing.T) {
	for must, want := range map[bool]string{
		false: "skipped: no nft",
		true:  "failed: no nft, and AGENT_INIT_MUST_RUN=1 forbids to skip",
	} {
		if got := ended(func(tb TB) { lacks(tb, must, "no %s", "nft") }); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTheVariableDecides(t *testing.T) {
	for value, want := range map[string]string{"": "skipped: x", "0": "skipped: x", "1": "failed: x, and AGENT_INIT_MUST_RUN=1 forbids to skip"} {
		t.Setenv("AGENT_INIT_MUST_RUN", value)
		if got := ended(func(tb TB) { Lacks(tb, "x") }); got != want {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}

func TestTool(t *testing.T) {
	if got := ended(func(tb TB) { Tool(tb, "sh") }); got != "" {
		t.Errorf("sh: %s", got)
	}
	t.Setenv("AGENT_INIT_MUST_RUN", "1")
	if got := ended(func(tb TB) { Tool(tb, "no-such-program") }); got == "" {
		t.Error("a program that nobody has is there")
	}
}
