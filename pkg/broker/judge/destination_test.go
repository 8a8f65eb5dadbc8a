package judge

import (
	"net/http"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// TestDestination: a request leads to no other path than one that a rule allows for it, whichever header names that.
func TestDestination(t *testing.T) {
	i := route.Inspected{
		Name: "dav.test", Allow: []route.Request{to([]string{"COPY", "PUT"}, "/open/**")}, Deny: []route.Request{to(nil, "/open/secret/**")},
	}
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		{"Destination", "https://dav.test/open/b", true}, {"Destination", "/open/a%20b", true}, {"X-Amz-Acl", "private", true},
		{"Destination", "/closed/b", false}, {"Destination", "https://dav.test/open/secret/b", false}, {"Destination", "/open/SECRET%2Fb", false},
		{"Destination", "/open/../closed", false}, {"Destination", "/open/%2e%2e/closed", false}, {"Destination", "//closed", false},
		{"Destination", "open/b", false}, {"Destination", "", false}, {"Destination", "dav:open", false}, {"Destination", "https://%zz/open", false},
		{"destination", "/closed/b", false}, {"X-Amz-Copy-Source", "/open/secret/b", false}, {"X_amz_copy_source", "x", false},
		{"X-Ms-Copy-Source", "https://x/", false}, {"X-Copy-From", "/open/b", false},
		{"X-Amz-Rename-Source", "/open/b", false}, {"X-Oss-Copy-Source", "/open/b", false}, {"X-Obs_copy-source", "/open/b", false},
	} {
		if _, refusal := Inspected(&i, "COPY", "/open/a", "", http.Header{c.name: {c.value}}); (refusal == nil) != c.ok {
			t.Errorf("%s: %s: %+v", c.name, c.value, refusal)
		}
	}
	if _, refusal := Inspected(&i, "COPY", "/open/a", "", http.Header{"Destination": {"/open/b", "/closed/b"}}); refusal == nil {
		t.Error("the second of two is not judged")
	}
	if _, refusal := Inspected(&i, "COPY", "/open/a", "", http.Header{"Destination": nil}); refusal == nil {
		t.Error("one behind the body is not judged")
	}
	all := route.Inspected{Name: "dav.test", Allow: []route.Request{to([]string{"COPY"}, "")}}
	for _, name := range []string{"Destination", "X-Amz-Copy-Source"} {
		if _, refusal := Inspected(&all, "COPY", "/a", "", http.Header{name: {"/b"}}); refusal != nil {
			t.Errorf("where no rule is about a path: %+v", refusal)
		}
	}
}
