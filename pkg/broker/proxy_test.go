package broker

import (
	"net/http"
	"testing"
)

func TestRequestGoesOn(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, http2, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Answer", "yes")
				w.Write([]byte("hello"))
			})
			r := start(t, a)
			got := r.ask("POST", "/r/post", "the body", "X-Fine", "1", "X-Other", "2")
			if got.StatusCode != 200 || got.text != "hello" || got.Header.Get("X-Answer") != "yes" {
				t.Fatalf("answered %d %q %v", got.StatusCode, got.text, got.Header)
			}
			q := a.requests()[0]
			t.Log(q.Proto, q.Method, q.URL, q.Host, q.Header)
			t.Logf("%+v %+v", r.event(), r.Stats())
		})
	}
}
