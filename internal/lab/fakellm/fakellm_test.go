package fakellm_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

// TestKey: with a key, whoever shows none, another, or another beside it gets 401, and is counted so.
func TestKey(t *testing.T) {
	m := &fakellm.Model{Key: "real"}
	tests := []struct {
		query string
		head  http.Header
		want  int
	}{
		{"", nil, 401},
		{"", http.Header{"X-Api-Key": {"real"}}, 200},
		{"", http.Header{"Authorization": {"Bearer real"}}, 200},
		{"", http.Header{"X-Goog-Api-Key": {"real"}}, 200},
		{"?key=real", nil, 200},
		{"", http.Header{"X-Api-Key": {"other"}}, 401},
		{"", http.Header{"X-Api-Key": {"real"}, "Authorization": {"Bearer other"}}, 401},
		{"?key=other", http.Header{"X-Api-Key": {"real"}}, 401},
	}
	for _, tt := range tests {
		r, w := httptest.NewRequest("GET", "/v1/models"+tt.query, nil), httptest.NewRecorder()
		r.Header = tt.head
		if r.Header == nil {
			r.Header = http.Header{}
		}
		m.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%q %v: %d, want %d", tt.query, tt.head, w.Code, tt.want)
		}
	}
	if c := m.Calls(); c["GET /v1/models"] != 4 || c["401 GET /v1/models"] != 4 {
		t.Errorf("counted %v", c)
	}
	if m.Forget(); len(m.Calls()) != 0 {
		t.Errorf("after Forget: %v", m.Calls())
	}
}

// TestTextNotices: the model does not say Text, which the tests of the images wait for, to who has called the tool and is
// told another result than the command's, or not what the shell says of the refused host.
func TestTextNotices(t *testing.T) {
	m := &fakellm.Model{Tools: true, Hints: true}
	const command, printed, hint = "curl -sS https://refused.example.com/; seq -f lab-%g 42 42 ", "lab-42 ", "agent-init: the policy refused refused.example.com"
	for told, want := range map[string]bool{
		"": true, command + printed + hint: true,
		command + "not found": false, command + hint: false, command + printed + "Could not resolve host": false,
	} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest("POST", "/v1/messages", strings.NewReader(`{"x":"`+told+`"}`)))
		if got := w.Body.String(); strings.Contains(got, fakellm.Text) != want {
			t.Errorf("told %q: %q", told, got)
		}
	}
}
