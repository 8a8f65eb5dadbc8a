package soak

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// run is two hours of samples: what a keeper takes goes up and down, and by so much an hour up.
func run(kibAnHour, descriptorsAnHour float64) *Series {
	s := New("keeper_private_kib", "keeper_descriptors", "keeper_threads", "sessions_private_kib",
		"sessions_descriptors", "guard_private_kib", "kills")
	random := rand.New(rand.NewPCG(1, 2))
	for t := time.Duration(0); t <= 2*time.Hour; t += 10 * time.Second {
		hours := t.Hours()
		values := map[string]float64{
			"keeper_private_kib":   6000 + 400*random.NormFloat64() + kibAnHour*hours,
			"keeper_descriptors":   31 + float64(random.IntN(2)) + math.Floor(descriptorsAnHour*hours),
			"keeper_threads":       17,
			"sessions_private_kib": 3000,
			"sessions_descriptors": 9,
			"kills":                math.Floor(t.Minutes()),
		}
		if random.IntN(30) > 0 { // else the guard had just been killed
			values["guard_private_kib"] = 4500
		}
		s.Add(t, values)
	}
	return s
}

func TestRise(t *testing.T) {
	s := New("a", "b")
	for i := range 101 {
		s.Add(time.Duration(i)*time.Second, map[string]float64{"a": 7, "b": float64(2 * max(0, i-50))})
	}
	if rise := s.Rise("a"); rise != 0 {
		t.Errorf("what stays rises by %v", rise)
	}
	if rise := s.Rise("b"); math.Abs(rise-100) > 1e-9 {
		t.Errorf("two a second for fifty seconds: %v", rise)
	}
	if rise := s.Rise("c"); !math.IsNaN(rise) {
		t.Errorf("no such column: %v", rise)
	}
}

// TestJudge: what goes up and down is no growth. A few KiB or a descriptor for one of what is done each minute is.
func TestJudge(t *testing.T) {
	for what, c := range map[string]struct {
		kib, descriptors float64
		faults           int
	}{
		"flat":                                {0, 0, 0},
		"shrinks":                             {-2000, 0, 0},
		"12 KiB for each guard":               {12 * 60, 0, 1},
		"a descriptor for each twentieth":     {0, 3, 1},
		"both, for each guard that is killed": {16 * 60, 60, 2},
	} {
		if faults := run(c.kib, c.descriptors).Judge(); len(faults) != c.faults {
			t.Errorf("%s: %q", what, faults)
		}
	}
	if faults := New("keeper_private_kib").Judge(); len(faults) != len(Bounds()) {
		t.Errorf("without samples: %q", faults)
	}
}

func TestReadWhatWasWritten(t *testing.T) {
	s := run(0, 0)
	var file, again bytes.Buffer
	if err := s.Write(&file); err != nil {
		t.Fatal(err)
	}
	text := file.String()
	read, err := Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	if err := read.Write(&again); err != nil || again.String() != text {
		t.Errorf("not the same again: %v", err)
	}
	if !strings.HasPrefix(text, "seconds,keeper_private_kib,") || !strings.Contains(text, ",,") {
		t.Errorf("begins with %.200s", text)
	}
	for _, bad := range []string{"", "a,b\n1,2\n", "seconds,a\n1,x\n", "seconds,a\n1\n"} {
		if _, err := Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken for samples", bad)
		}
	}
}

func TestPicture(t *testing.T) {
	for what, s := range map[string]*Series{"two hours": run(100, 1), "nothing": New("flows")} {
		var out bytes.Buffer
		if err := s.Picture(&out); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "NaN") || strings.Contains(out.String(), "Inf") {
			t.Errorf("%s: a point is nowhere", what)
		}
		if !strings.Contains(out.String(), "prefers-color-scheme: dark") {
			t.Errorf("%s: no colours for a dark page", what)
		}
		for d := xml.NewDecoder(&out); ; {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
}

func TestInsert(t *testing.T) {
	page, err := run(0, 0).Insert("before\n" + begin + "old\n" + end + "after\n")
	if err != nil || !strings.HasPrefix(page, "before\n"+begin+"| in 2 h |") || !strings.HasSuffix(page, end+"after\n") || strings.Contains(page, "old") {
		t.Errorf("%v: %s", err, page)
	}
	if _, err := run(0, 0).Insert("without a place"); err == nil {
		t.Error("a page without a place is no error")
	}
}

func TestSpan(t *testing.T) {
	for seconds, want := range map[float64]string{0: "0", 40: "40 s", 90: "1 min 30 s", 7200: "2 h", 4500: "1 h 15 min", 7199.6: "2 h"} {
		if got := span(seconds); got != want {
			t.Errorf("%v: %q, want %q", seconds, got, want)
		}
	}
}
