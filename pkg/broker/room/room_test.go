package room

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const patience = time.Minute

// small is a room of n bytes in which nobody is idle, and nobody loses patience.
func small(n int64) *Room {
	r := New(n)
	r.Idle, r.Patience, r.Longest = time.Hour, time.Hour, time.Hour
	return r
}

// told is a hold that says when it is to end.
func (r *Room) told() (*Hold, chan struct{}) {
	ended := make(chan struct{})
	return r.Hold(func() { close(ended) }), ended
}

func take(t *testing.T, h *Hold, n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := h.Take(ctx, n); err != nil {
		t.Fatal(err)
	}
}

// begins has h wait for n bytes, and returns when it is in the queue.
func begins(t *testing.T, h *Hold, n int64) (got chan error) {
	t.Helper()
	got = make(chan error, 1)
	before := h.room.waits()
	go func() { got <- h.Take(t.Context(), n) }()
	for until := time.Now().Add(patience); h.room.waits() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it does not wait")
		}
	}
	return got
}

func (r *Room) waits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue)
}

func wait[T any](t *testing.T, c chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing happens")
		panic("")
	}
}

// since has h hold what it has for so long without having moved anything.
func (h *Hold) idleFor(d time.Duration) {
	h.room.mu.Lock()
	defer h.room.mu.Unlock()
	h.since = h.since.Add(-d)
}

// TestOrder: who is to hold least gets room first, and then who came first.
func TestOrder(t *testing.T) {
	r := small(100)
	a, _ := r.told()
	b, _ := r.told()
	c, _ := r.told()
	d, _ := r.told()
	take(t, a, 90)
	large := begins(t, b, 50)
	little := begins(t, c, 20)
	later := begins(t, d, 20)
	a.Give(15)
	if err := wait(t, little); err != nil {
		t.Error(err)
	}
	select {
	case <-large:
		t.Error("there is no room")
	case <-later:
		t.Error("it went past one before it")
	default:
	}
	c.End()
	if err := wait(t, later); err != nil {
		t.Error(err)
	}
	d.End()
	a.Give(75)
	if wait(t, large) != nil || r.Free() != 50 {
		t.Errorf("%d are free", r.Free())
	}
	b.End()
	b.Give(50) // late
	if r.Free() != 100 || !errors.Is(b.Take(t.Context(), 1), ErrFull) {
		t.Errorf("%d are free", r.Free())
	}
}

// TestGivesUp: who does not wait any longer leaves its place to the next.
func TestGivesUp(t *testing.T) {
	r := small(100)
	a, _ := r.told()
	b, _ := r.told()
	c, _ := r.told()
	take(t, a, 90)
	ctx, cancel := context.WithCancelCause(t.Context())
	left := make(chan error, 1)
	go func() { left <- b.Take(ctx, 50) }()
	for r.waits() == 0 {
		time.Sleep(time.Millisecond)
	}
	next := begins(t, c, 60)
	cancel(io.ErrClosedPipe)
	if err := wait(t, left); err != io.ErrClosedPipe {
		t.Error(err)
	}
	a.Give(50)
	if wait(t, next) != nil || r.Free() != 0 {
		t.Errorf("%d are free", r.Free())
	}
	if c.Take(t.Context(), 101) == nil {
		t.Error("there is more than all")
	}
}

// TestIdle: the largest of the idle ones gives way, as many as it takes, and nobody else. Who waits is not idle.
func TestIdle(t *testing.T) {
	r := small(100)
	r.Idle = time.Minute
	holds, ended := map[string]*Hold{}, map[string]chan struct{}{}
	for name, size := range map[string]int64{"old": 5, "large": 30, "larger": 35, "busy": 30} {
		holds[name], ended[name] = r.told()
		take(t, holds[name], size)
		holds[name].idleFor(2 * time.Minute)
	}
	holds["old"].idleFor(time.Hour)
	holds["busy"].Moved(7)
	holds["busy"].idleFor(2 * time.Minute)
	holds["busy"].Moved(8) // a quarter in all
	h, _ := r.told()
	got := begins(t, h, 60)
	for _, name := range []string{"large", "larger"} {
		wait(t, ended[name])
		holds[name].End()
	}
	if err := wait(t, got); err != nil {
		t.Error(err)
	}
	h.idleFor(2 * time.Minute)
	h.Moved(20)
	more := begins(t, holds["busy"], 7) // for which the oldest is large enough
	wait(t, ended["old"])
	holds["old"].End()
	if err := wait(t, more); err != nil {
		t.Error(err)
	}
	last := begins(t, holds["busy"], 50)
	h.End()
	if err := wait(t, last); err != nil {
		t.Error(err)
	}
	select {
	case <-ended["busy"]:
		t.Error("one that moves was ended")
	default:
	}
}

// TestAllWait: of those who each hold a part and want more, one gives way, so that the others get it.
func TestAllWait(t *testing.T) {
	r := New(90)
	r.Idle, r.Patience = 4*time.Millisecond, 20*time.Millisecond
	got, ended := make(chan error), make(chan *Hold, 3)
	for range 3 {
		var h *Hold
		h = r.Hold(func() { ended <- h })
		take(t, h, 30)
		go func() {
			err := h.Take(t.Context(), 15)
			if err == nil {
				<-t.Context().Done()
				return
			}
			h.End()
			got <- err
		}()
	}
	if err := wait(t, got); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	for until := time.Now().Add(patience); r.Free() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d are free", r.Free())
		}
	}
	if wait(t, ended); len(ended) > 0 {
		t.Error("more than one gave way")
	}
}

// TestBuffer holds that room is taken as bytes come, and that what comes is what there is.
func TestBuffer(t *testing.T) {
	for _, size := range []int{0, 1, smallest - 1, smallest, smallest + 1, 100_000} {
		text := strings.Repeat("x", size)
		for _, most := range []int{size, size + 1, 1 << 20} {
			r := small(1 << 20)
			b := &Buffer{Hold: r.Hold(nil), Ctx: t.Context(), Most: most}
			got, err := b.ReadAll(iotest.DataErrReader(strings.NewReader(text)))
			if err != nil || string(got) != text || r.limit-r.Free() != int64(cap(got)) || cap(got) > max(smallest, 2*size) {
				t.Errorf("%d of %d: %d with room for %d, of which %d is taken: %v", size, most, len(got), cap(got), r.limit-r.Free(), err)
			}
		}
		if size == 0 {
			continue
		}
		b := &Buffer{Hold: small(1 << 20).Hold(nil), Ctx: t.Context(), Most: size - 1}
		if _, err := b.ReadAll(strings.NewReader(text)); err != io.ErrShortBuffer {
			t.Errorf("%d, one too many: %v", size, err)
		}
		b = &Buffer{Hold: small(1 << 20).Hold(nil), Ctx: t.Context(), Most: size - 1}
		if _, err := io.Copy(b, iotest.OneByteReader(strings.NewReader(text[:min(size, 5000)]))); size < 5000 && err == nil {
			t.Errorf("%d are written where there is to be one less", size)
		}
	}
	b := &Buffer{Hold: small(3 * smallest).Hold(nil), Ctx: t.Context(), Most: 1 << 20}
	b.Hold.End()
	if _, err := b.Write([]byte("x")); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	b = &Buffer{Hold: small(1 << 20).Hold(nil), Ctx: t.Context(), Most: 1 << 20}
	for range 1000 {
		if _, err := b.Write(bytes.Repeat([]byte("ab"), 50)); err != nil {
			t.Fatal(err)
		}
	}
	if string(b.Bytes()) != strings.Repeat("ab", 50_000) {
		t.Error("other bytes")
	}
}
