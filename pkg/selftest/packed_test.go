package selftest

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
)

func TestPackedReport(t *testing.T) {
	for _, fail := range []bool{false, true} {
		want := testReport(fail)
		got, err := ReadPacked(bytes.NewReader(want.Pack()))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
}

// The parent believes nothing that the checks don't bear out, and reads nothing
// that no probe writes.
func TestReadPacked(t *testing.T) {
	check := Check{Name: "tcp", Target: "a", Want: Blocked, Got: Blocked, OK: true}
	report := func(checks ...Check) []byte { return Report{Version: Version, OK: true, Checks: checks}.Pack() }
	change := func(at int, b byte) []byte {
		raw := report(check)
		raw[at] = b
		return raw
	}
	head := binary.Size(packedReport{})
	failed, dishonest := check, check
	failed.OK, failed.Got, dishonest.Got = false, Unknown, Reachable
	for name, tt := range map[string]struct {
		raw    []byte
		ok     bool
		failed bool // to be read
	}{
		"good":            {report(check), true, false},
		"no checks":       {report(), false, false},
		"a failed check":  {report(check, failed), false, false},
		"a dishonest one": {report(dishonest), false, false},
		"other version":   {change(3, 2), false, true},
		"many checks":     {change(head-4, 0xff), false, true},
		"a check more":    {change(head-1, 2), false, true},
		"a long text":     {change(head+8, 0xff), false, true},
		"empty":           {nil, false, true},
		"torn":            {report(check)[:head+20], false, true},
		"cut":             {report(check)[:len(report(check))-1], false, true},
		"two":             {append(report(check), report(check)...), false, true},
		"JSON":            {[]byte(strings.Repeat(`{"version":1,"ok":true} `, 20)), false, true},
	} {
		r, err := ReadPacked(bytes.NewReader(tt.raw))
		if (err != nil) != tt.failed || r.OK != tt.ok {
			t.Errorf("%s: ok %v, %v", name, r.OK, err)
		}
		if !r.OK && err == nil && len(r.Failures()) == 0 {
			t.Errorf("%s: it doesn't say what failed", name)
		}
	}
	raw := bytes.Replace(report(Check{Name: "tcp", Target: "escaped", Want: Blocked, Got: Blocked, OK: true}), []byte("escaped"), []byte("\x1b[2J\u202e"), 1)
	r, err := ReadPacked(bytes.NewReader(raw))
	if err != nil || !r.OK || strings.ContainsAny(r.Checks[0].Target, "\x1b\u202e") {
		t.Errorf("control sequence: %+v, %v", r, err)
	}
}

func FuzzReadPacked(f *testing.F) {
	f.Add(testReport(false).Pack())
	f.Add(testReport(true).Pack())
	f.Add(Report{Version: Version, OK: true}.Pack())
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := ReadPacked(bytes.NewReader(raw))
		if err != nil {
			return
		}
		if r.OK && len(r.Failures()) > 0 {
			t.Errorf("ok, but %q", r.Failures())
		}
		var b bytes.Buffer
		if err := r.WriteTable(&b, false); err != nil || strings.ContainsRune(b.String(), '\x1b') {
			t.Errorf("table %q, %v", b.String(), err)
		}
	})
}
