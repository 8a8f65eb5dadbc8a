package state

import (
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A keeper that was killed still has the lock while its threads end: who comes
// next waits for that, and for nothing else.
func TestKept(t *testing.T) {
	dead := process{PID: os.Getpid(), Start: 1} // the pid is another's by now
	for name, c := range map[string]struct {
		keeper  process
		release time.Duration // 0: not at all
		kept    bool
		waits   time.Duration
	}{
		"at work":     {Self(), 0, true, 0},
		"just killed": {dead, 20 * time.Millisecond, false, 20 * time.Millisecond},
		"of another":  {dead, 0, true, EndPatience},
	} {
		t.Run(name, func(t *testing.T) {
			d := Dir(t.TempDir())
			lock, err := d.Lock()
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			if err := d.Write(StatusFile, 0o644, State{Keeper: c.keeper}); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				if c.release > 0 {
					time.AfterFunc(c.release-time.Millisecond, func() { lock.Close() })
				}
				begun := time.Now()
				kept := d.Kept()
				if took := time.Since(begun); kept != c.kept || took < c.waits || took > c.waits+5*time.Millisecond {
					t.Errorf("%v after %v; want %v after %v", kept, took, c.kept, c.waits)
				}
			})
		})
	}
}

func TestNotKept(t *testing.T) {
	d := Dir(t.TempDir())
	if d.Kept() {
		t.Error("kept without a lock file")
	}
	lock, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
	if d.Kept() {
		t.Error("kept without a lock")
	}
}
