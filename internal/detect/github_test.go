package detect

import (
	"context"
	"errors"
	"fmt"
	web "net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// answering is an image to which api.github.com/meta says text.
func answering(text string) *image {
	im := fixture("")
	im.fetch = func(url string) ([]byte, error) {
		if url != "https://api.github.com/meta" {
			return nil, errors.New("asked for " + url)
		}
		return []byte(text), nil
	}
	return im
}

func TestDetectGitHubMeta(t *testing.T) {
	unreachable := fixture("")
	unreachable.fetch = func(string) ([]byte, error) { return nil, fmt.Errorf("%w from there", errUnreachable) }
	runDetectTests(t, "github-meta", []detectTest{
		{name: "merged", im: answering(`{"web":["1.2.3.4/32"],"git":["140.82.114.0/24","4.208.26.197/32","140.82.112.0/20","2a0a:a440::/29","4.208.26.197/32","2a0a:a441::/32"]}`),
			want: "4.208.26.197/32:22  # git over SSH, https://api.github.com/meta\n" +
				"140.82.112.0/20:22  # git over SSH, https://api.github.com/meta\n" +
				"[2a0a:a440::]/29:22  # git over SSH, https://api.github.com/meta"},
		{name: "unreachable", im: unreachable, want: "@github-meta  # git over SSH, the built-in copy, since no answer from there"},
		{name: "refused in another way", im: fixture(""), fails: "without the internet"},
		{name: "not JSON", im: answering("<html>"), fails: "not the JSON"},
		{name: "no list", im: answering(`{"web":["1.2.3.0/24"]}`), fails: "lists 0 addresses"},
		{name: "too many", im: answering(`{"git":["1.2.3.0/24"` + strings.Repeat(`,"1.2.3.0/24"`, maxMetaPrefixes) + `]}`), fails: "lists 2001 addresses"},
		{name: "everything", im: answering(`{"git":["0.0.0.0/0"]}`), fails: "no range of public"},
		{name: "too much", im: answering(`{"git":["16.0.0.0/11"]}`), fails: "no range of public"},
		{name: "too much IPv6", im: answering(`{"git":["2a00::/20"]}`), fails: "no range of public"},
		{name: "private", im: answering(`{"git":["10.1.0.0/16"]}`), fails: "no range of public"},
		{name: "metadata", im: answering(`{"git":["169.254.169.254/32"]}`), fails: "no range of public"},
		{name: "bits below the mask", im: answering(`{"git":["140.82.112.1/20"]}`), fails: "no range of public"},
		{name: "mapped", im: answering(`{"git":["::ffff:140.82.112.0/116"]}`), fails: "no range of public"},
		{name: "an address", im: answering(`{"git":["140.82.112.1"]}`), fails: "no range of public"},
	})
}

func TestFetcher(t *testing.T) {
	s := httptest.NewTLSServer(web.HandlerFunc(func(w web.ResponseWriter, r *web.Request) {
		switch r.URL.Path {
		case "/meta":
			fmt.Fprint(w, r.UserAgent())
		case "/large":
			w.Write(make([]byte, maxMeta+1))
		case "/short":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
		default:
			web.NotFound(w, r)
		}
	}))
	defer s.Close()
	fetch := fetcher(context.Background(), s.Client())
	if got, err := fetch(s.URL + "/meta"); err != nil || string(got) != "agent-init" {
		t.Errorf("%q, %v", got, err)
	}
	for _, path := range []string{"/missing", "/short"} {
		if _, err := fetch(s.URL + path); !errors.Is(err, errUnreachable) {
			t.Errorf("%s: %v, want no answer", path, err)
		}
	}
	if _, err := fetch(s.URL + "/large"); err == nil || errors.Is(err, errUnreachable) {
		t.Errorf("too large: %v", err)
	}
	// An authority that is not trusted is no answer either.
	if _, err := fetcher(context.Background(), &web.Client{})(s.URL + "/meta"); !errors.Is(err, errUnreachable) {
		t.Errorf("untrusted: %v, want no answer", err)
	}
}
