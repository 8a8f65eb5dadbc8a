package route

import "testing"

func TestMatchPath(t *testing.T) {
	for _, tt := range []struct {
		pattern   string
		match, no []string
	}{
		{"/v1/messages", []string{"/v1/messages"}, []string{"/v1/messages/", "/v1", "/v1/messages/batches", "/v1/message", "v1/messages", ""}},
		{"/v1/models/*", []string{"/v1/models/a", "/v1/models/a-1.b"}, []string{"/v1/models/", "/v1/models", "/v1/models/a/b"}},
		{"/m/*:generate", []string{"/m/a:generate"}, []string{"/m/a:b:generate", "/m/:generate", "/m/a:generateX", "/m/a/b:generate", "/m/a:"}},
		{"/a*b*c", []string{"/axbyc", "/abbbc"}, []string{"/abc", "/axbc", "/axbyc/"}},
		{"/v2/**", []string{"/v2/", "/v2/a", "/v2/a/b/", "/v2/**"}, []string{"/v2", "/v3/a", "/", ""}},
		{"/*/x/**", []string{"/a/x/", "/a/x/b/c"}, []string{"//x/b", "/a/x", "/a/b/x/c"}},
		{"/**/*/x", []string{"/a/b/x", "/a/b/c/x", "/x/x/x"}, []string{"/a/x", "/x", "a/b/c/x", "/a/b/c/y", "/a/b/x/"}},
		{"/**", []string{"/", "/a", "/a/b"}, []string{""}},
	} {
		e := Endpoint{Path: tt.pattern}
		for _, path := range tt.match {
			if !e.MatchPath(path) {
				t.Errorf("%s does not match %s", tt.pattern, path)
			}
		}
		for _, path := range tt.no {
			if e.MatchPath(path) {
				t.Errorf("%s matches %s", tt.pattern, path)
			}
		}
	}
}
