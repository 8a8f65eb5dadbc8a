package main

import (
	"strings"
	"testing"
)

// TestReport: of two packages that run beside one another, each one's words stand together; and how far both are is told.
func TestReport(t *testing.T) {
	events := `{"Action":"start","Package":"m/a"}
{"Action":"start","Package":"m/b"}
{"Action":"run","Package":"m/a","Test":"TestA"}
{"Action":"output","Package":"m/a","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"m/b","Output":"2 tests run here\n"}
{"Action":"run","Package":"m/b","Test":"TestB"}
{"Action":"output","Package":"m/b","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"run","Package":"m/b","Test":"TestB/sub"}
{"Action":"fail","Package":"m/b","Test":"TestB/sub"}
{"Action":"fail","Package":"m/b","Test":"TestB"}
{"Action":"output","Package":"m/a","Test":"TestA","Output":"a words\n"}
{"Action":"output","Package":"m/b","Output":"FAIL\n"}
{"Action":"fail","Package":"m/b"}
{"Action":"run","Package":"m/a","Test":"TestA2"}
{"Action":"output","Package":"m/a","Test":"TestA2","Output":"=== RUN   TestA2\n"}
{"Action":"output","Package":"m/a","Test":"TestA","Output":"half a "}
{"Action":"output","Package":"m/a","Test":"TestA2","Output":"line\n"}
{"Action":"output","Package":"m/a","Test":"TestA2","Output":"others\n"}
{"Action":"pause","Package":"m/a","Test":"TestA2"}
{"Action":"pass","Package":"m/a","Test":"TestA"}
{"Action":"cont","Package":"m/a","Test":"TestA2"}
{"Action":"pass","Package":"m/a","Test":"TestA2"}
{"Action":"output","Package":"m/a","Output":"ok\n"}
{"Action":"pass","Package":"m/a"}
`
	var out strings.Builder
	r := &report{out: &out, known: map[string]int{"m/a": 2, "m/b": 9, "m/c": 1}}
	var told []string
	if err := r.read(strings.NewReader(events), func() error { told = append(told, r.String()); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := "=== RUN   TestA\na words\n=== RUN   TestA2\n=== NAME  TestA\nhalf a line\n=== NAME  TestA2\nothers\nok\n2 tests run here\n=== RUN   TestB\nFAIL\n"; out.String() != want {
		t.Errorf("it printed\n%s\nwant\n%s", out.String(), want)
	}
	all := strings.Join(told, "\n")
	for _, want := range []string{
		"0 tests passed, 0 of 3 packages ended, a 0 of 2 (TestA), b 0 of 2 (TestB)\n",
		"0 tests passed, 1 of 3 packages ended, FAILED: TestB/sub TestB, a 0 of 2 (TestA)\n",
		"1 tests passed, 1 of 3 packages ended, FAILED: TestB/sub TestB, a 1 of 2 (TestA2)\n",
		"2 tests passed, 2 of 3 packages ended, FAILED: TestB/sub TestB",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("it never said %q:\n%s", want, all)
		}
	}
}

// TestCount: tests are counted as go test would choose them.
func TestCount(t *testing.T) {
	for want, args := range map[int][]string{
		2: {"-count=1", "-p", "2", "."},
		1: {"-run", "^TestCount$", "-timeout", "60m", "."},
		0: {"-skip", "^Test", "-exec", "x", "."},
	} {
		got, err := count(args)
		if err != nil || len(got) != 1 {
			t.Fatalf("%v: %v, %v", args, got, err)
		}
		for name, n := range got {
			if n != want {
				t.Errorf("%v: %s has %d, want %d", args, name, n, want)
			}
		}
	}
}
