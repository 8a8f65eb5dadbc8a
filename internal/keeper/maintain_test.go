package keeper

import (
	"fmt"
	"testing"
)

func TestBursts(t *testing.T) {
	for name, c := range map[string]struct {
		counts []uint64
		want   []bool
	}{
		"nothing":         {[]uint64{0, 0, 0}, []bool{false, false, false}},
		"a few":           {[]uint64{10, 999, 999}, []bool{false, false, false}},
		"many":            {[]uint64{0, 600, 40000, 40000, 40000}, []bool{false, false, false, true, false}},
		"few more":        {[]uint64{2000, 2000, 2999, 2999}, []bool{false, true, false, false}},
		"and many again":  {[]uint64{2000, 2000, 3000, 3000}, []bool{false, true, false, true}},
		"a steady stream": {[]uint64{1000, 2000, 3000, 4000}, []bool{false, false, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bursts
			var got []bool
			for _, n := range c.counts {
				got = append(got, b.over(n))
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
