package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/inspect"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/window/client"
)

// TestNoTimeBeforeTime: what programs read leaves out a time that is not known,
// instead of saying the year 1.
func TestNoTimeBeforeTime(t *testing.T) {
	seen := map[reflect.Type]bool{}
	times := 0
	var walk func(reflect.Type)
	walk = func(in reflect.Type) {
		for in.Kind() == reflect.Pointer || in.Kind() == reflect.Slice || in.Kind() == reflect.Map {
			in = in.Elem()
		}
		if in.Kind() != reflect.Struct || seen[in] {
			return
		}
		seen[in] = true
		for i := range in.NumField() {
			f := in.Field(i)
			tag := f.Tag.Get("json")
			switch {
			case !f.IsExported() && !f.Anonymous || tag == "-":
			case f.Type == reflect.TypeFor[time.Time]():
				times++
				if !strings.Contains(tag, ",omitzero") {
					t.Errorf("%v.%s may say the year 1", in, f.Name)
				}
			default:
				walk(f.Type)
			}
		}
	}
	for _, v := range []any{state.Report{}, grant.Report{}, grant.Granted{}, grant.Proposed{}, inspect.Suggestions{}, client.Sessions{}, lease.Report{}} {
		walk(reflect.TypeOf(v))
	}
	if times < 10 {
		t.Errorf("met %d times only", times)
	}
}

// TestAPathOnce: who names a file says its path, and the cause does not say it again.
func TestAPathOnce(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	_, lost := os.Open(gone)
	if !errors.Is(text.CauseOf(lost), fs.ErrNotExist) || text.CauseOf(lost).Error() != "no such file or directory" {
		t.Error(text.CauseOf(lost))
	}
	said := map[string]error{}
	said["state"] = state.Dir(gone).Write("x.json", 0o600, 1)
	_, _, _, said["the policy"] = state.ReadRules(filepath.Join(gone, state.PolicyFile))
	for what, err := range said {
		if err == nil || strings.Count(err.Error(), gone) != 1 {
			t.Errorf("%s: %v", what, err)
		}
	}
}
