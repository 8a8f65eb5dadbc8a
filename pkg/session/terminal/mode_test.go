package terminal

import (
	"fmt"
	"slices"
	"testing"
)

// TestModeAnswers walks all that the model answers about modes. A mode that it knows is set and reset, as it says. One that
// is always set stays so. Of no other it says that it knows it.
func TestModeAnswers(t *testing.T) {
	known := slices.Concat(modeNumbers[:], mouseModes, []int{6, 47, 1047, 1049})
	ask := func(term *Terminal, number int, then string) (answer int) {
		private := "?"
		if number < 0 {
			number, private = -number, ""
		}
		fmt.Fprintf(term, "\x1b[%s%d%s", private, number, then)
		if then != "$p" {
			return -1
		}
		var said int
		format := "\x1b[" + private + "%d;%d$y"
		if n, err := fmt.Sscanf(string(term.Replies()), format, &said, &answer); n != 2 || said != number {
			t.Fatalf("mode %d: no answer: %v", number, err)
		}
		return answer
	}
	for number := -100; number <= 3000; number++ {
		if number == 0 {
			continue
		}
		term := New(Options{Cols: 80, Rows: 24})
		first := ask(term, number, "$p")
		ask(term, number, "h")
		on := ask(term, number, "$p")
		ask(term, number, "l")
		off := ask(term, number, "$p")
		switch got := [3]int{first, on, off}; {
		case number == 2027:
			if got != [3]int{3, 3, 3} {
				t.Errorf("mode %d, on whatever is said: %v", number, got)
			}
		case number == 2031 || number == 2048 || !slices.Contains(known, number):
			if got != [3]int{} {
				t.Errorf("mode %d, which is none of ours: %v", number, got)
			}
		case got != [3]int{2, 1, 2} && got != [3]int{1, 1, 2}:
			t.Errorf("mode %d: first %d, then set %d, then reset %d", number, first, on, off)
		}
	}
}
