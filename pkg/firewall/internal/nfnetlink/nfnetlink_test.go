package nfnetlink

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func TestEachAttr(t *testing.T) {
	u16 := func(n int) []byte { return binary.NativeEndian.AppendUint16(nil, uint16(n)) }
	one := func(size, typ int, data string) []byte { return append(append(u16(size), u16(typ)...), data...) }
	for name, c := range map[string]struct {
		in    []byte
		want  string
		fails bool
	}{
		"nothing":              {nil, "[]", false},
		"an empty one":         {one(4, 7, ""), `[7 ""]`, false},
		"padded, then nested":  {append(one(5, 1, "a\x00\x00\x00"), one(8, 2|unix.NLA_F_NESTED, "bcde")...), `[1 "a" 2 "bcde"]`, false},
		"last without pad":     {one(6, 3|unix.NLA_F_NET_BYTEORDER, "xy"), `[3 "xy"]`, false},
		"longer than the rest": {append(one(4, 1, ""), one(9, 2, "abcd")...), `[1 ""]`, true},
		"shorter than itself":  {one(3, 1, "abcd"), "[]", true},
		"no length":            {one(0, 1, "abcd"), "[]", true},
		"half a head":          {append(one(4, 1, ""), 4, 0), `[1 ""]`, true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []any
			err := EachAttr(c.in, func(typ uint16, data []byte) error {
				got = append(got, typ, strconv.Quote(string(data)))
				return nil
			})
			if s := fmt.Sprint(got); s != c.want || (err != nil) != c.fails {
				t.Errorf("got %s, %v; want %s", s, err, c.want)
			}
		})
	}
}
