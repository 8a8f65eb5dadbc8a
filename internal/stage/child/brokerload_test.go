package child

import (
	"encoding/binary"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/route"
)

func TestBrokerLoad(t *testing.T) {
	a, _ := route.Builtin("anthropic")
	o, _ := route.Builtin("openai")
	want := stage.BrokerLoad{
		Routes: []route.Route{a, {Name: "local", To: "http://127.0.0.1:8000/", Keyless: true}, o}, Roots: []byte("PEM"),
		Credentials: map[string][]byte{"anthropic": []byte("sk-ant-canary"), "openai": []byte("sk-other")},
		Proxy:       route.Proxy{Host: "proxy.example", Port: 3128, Scheme: route.Bearer}, ProxyCredential: []byte("of-the-proxy"),
	}
	f, err := want.File()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadBrokerLoad(f)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC() // wipes what nobody refers to
	runtime.GC()
	got.Lengths = nil
	if !reflect.DeepEqual(got.Credentials, want.Credentials) || string(got.Roots) != "PEM" || len(got.Routes) != 3 ||
		got.Routes[0].Inject.Header != a.Inject.Header || got.Routes[2].To != o.To ||
		!reflect.DeepEqual(got.Proxy, want.Proxy) || string(got.ProxyCredential) != "of-the-proxy" {
		t.Errorf("got %+v", got)
	}
}

// TestBrokerLoadBroken: what is cut short, or does not agree with itself, is an error.
func TestBrokerLoadBroken(t *testing.T) {
	with := func(head, rest string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(head)))) + head + rest
	}
	for what, content := range map[string]string{
		"nothing": "", "half a length": "\x00\x00", "no head": with("{}", "")[:5], "no JSON": with("no", ""),
		"a length more":     with(`{"lengths":[0,1,0]}`, "x"),
		"a credential less": with(`{"routes":[{"name":"a"}],"lengths":[0,2,0]}`, "x"),
		"a long one":        with(`{"routes":[{"name":"a"}],"lengths":[0,65537,0]}`, strings.Repeat("x", wire.MaxSecret+1)),
		"no lengths":        with(`{}`, ""),
		"roots cut short":   with(`{"lengths":[9,0]}`, "x"),
		"many roots":        with(`{"lengths":[67108865]}`, "x"),
		"a negative one":    with(`{"routes":[{"name":"a"}],"lengths":[0,-1]}`, ""),
	} {
		f, err := wire.MemfdOf("broken", func(w io.Writer) error { _, err := io.WriteString(w, content); return err })
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ReadBrokerLoad(f); err == nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
}
