package policy

import (
	"slices"
	"testing"
)

func TestDiffers(t *testing.T) {
	file := func(name, data string) File { return File{Name: name, Data: []byte(data)} }
	old := &Bundle{Files: []File{file("a", "1"), file("b", "2")}, Hosts: []byte("h")}
	for _, tt := range []struct {
		now  Bundle
		want []string
	}{
		{Bundle{Files: []File{file("a", "1"), file("b", "2")}, Hosts: []byte("h")}, nil},
		{Bundle{Files: []File{file("a", "1"), file("b", "3")}, Hosts: []byte("h")}, []string{"b"}},
		{Bundle{Files: []File{file("c", "1"), file("b", "2")}, Hosts: []byte("h")}, []string{"c", "a"}},
		{Bundle{Files: []File{file("a", "1"), file("b", "2")}}, []string{"hosts"}},
		{Bundle{Files: old.Files, Hosts: old.Hosts, Absent: []string{"openai"}}, []string{"which credentials are there"}},
		{Bundle{Files: []File{file("a", "1"), file("b", "2")}, Hosts: []byte("h"), Warnings: []Error{{Text: "x"}}}, []string{"what is not read"}},
	} {
		if got := tt.now.Differs(old); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.now, got, tt.want)
		}
	}
}
