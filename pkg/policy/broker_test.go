package policy

import (
	"slices"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

func TestBuiltInRoute(t *testing.T) {
	p := parse(t, "p.yaml", "broker: {anthropic: }\n")
	want, _ := route.Builtin("anthropic")
	if len(p.Settings.Broker) != 1 || p.Settings.Broker[0].To != want.To || !slices.Equal(p.Settings.Broker[0].Credential, want.Credential) {
		t.Errorf("%+v", p.Settings.Broker)
	}
	if p.Broker == nil || !p.Broker.Decide("api.anthropic.com", HTTPS).Allowed || p.Broker.Decide("api.anthropic.com", HTTP).Allowed {
		t.Errorf("the broker's own policy: %+v", p.Broker)
	}
	if p.Decide("api.anthropic.com", HTTPS).Allowed {
		t.Error("the agent reaches the host of a route")
	}
}

func TestWithoutRoutes(t *testing.T) {
	for _, data := range []string{"", "broker:\n", "broker: {}\n"} {
		if p := parse(t, "p.yaml", data); p.Broker != nil || p.Settings.Broker != nil || p.AbsentRoutes != nil {
			t.Errorf("%q: %+v, %+v", data, p.Broker, p.Settings.Broker)
		}
	}
}

func TestAbsentRoute(t *testing.T) {
	b := &Bundle{Files: []File{
		{Name: "p.yaml", Data: []byte("broker: {openai: {optional: true}, anthropic: {optional: true}, gemini: }\n")},
		{Name: "a.txt", Data: []byte("api.anthropic.com unbrokered\napi.openai.com unbrokered\n")},
	}, Absent: []string{"anthropic", "gemini"}}
	p, err := Parse(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range p.Settings.Broker {
		names = append(names, r.Name)
	}
	if !slices.Equal(names, []string{"openai", "gemini"}) || !slices.Equal(p.AbsentRoutes, []string{"anthropic"}) {
		t.Errorf("routes %q, absent %q: only an optional one can be", names, p.AbsentRoutes)
	}
	if !p.Decide("api.anthropic.com", HTTPS).Allowed || p.Decide("api.openai.com", HTTPS).Allowed {
		t.Error("an unbrokered entry counts while there is a route, or doesn't while there is none")
	}
	if p.Broker.Decide("api.anthropic.com", HTTPS).Allowed || !p.Broker.Decide("api.openai.com", HTTPS).Allowed {
		t.Error("the broker reaches the host of an absent route, or not that of a present one")
	}
}
