package broker

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// serves waits until the model is reached over a broker again.
func serves(b *rig.Brokered, what string) (took time.Duration) {
	b.Helper()
	begun := time.Now()
	if !rig.Eventually(60*time.Second, func() bool { return b.Prompt(b.Ask()...).OK }) {
		b.Fatalf("after %s: the model is not reached: %s\n%s", what, b.Prompt(b.Ask()...), b.Agent.Stderr())
	}
	return time.Since(begun)
}

var _ = rig.Also(TestBrokerKilled, rig.UnderStress)

// TestBrokerKilled: a broker is killed at random, while the agent asks. What it was doing ends in an error, nothing
// goes another way, the next one knows the same token, and what was spent stays spent.
func TestBrokerKilled(t *testing.T) {
	b := broker(t, "    limits: {requests_per_minute: 100000}\n", lab.BoxOptions{})
	before, kills := status1(b, "requests"), rig.Often(5, 50)
	var asked, failed atomic.Int64
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if asked.Add(1); !b.Prompt(b.Ask()...).OK {
				failed.Add(1)
			}
		}
	}()
	random := rand.New(rand.NewPCG(1, uint64(kills)))
	for kill := range kills {
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		p := b.Process()
		p.Signal(t, unix.SIGKILL)
		if !rig.Eventually(60*time.Second, func() bool { now := b.Brokers(); return len(now) == 1 && now[0].Host != p.Host }) {
			t.Fatalf("kill %d: there is no next broker: %v", kill+1, b.Brokers())
		}
	}
	close(stop)
	<-ended
	serves(b, "the last kill")
	for _, r := range b.Lab.Web.Requests() {
		if r.Host != "api.anthropic.com" || r.Header.Get("X-Api-Key") != rig.BrokerKey {
			t.Errorf("somebody else was asked, or by another key: %+v", r)
		}
	}
	if n := status1(b, "requests") - before; n == 0 || n > float64(asked.Load()+1) {
		t.Errorf("%v requests were counted, of %d", n, asked.Load())
	}
	t.Logf("%d requests, %d of them failed, %d kills", asked.Load(), failed.Load(), kills)
	keyless(b)
}

// status1 is a number of the first route's.
func status1(b *rig.Brokered, name string) float64 {
	b.Helper()
	s, _ := b.Status()
	routes, _ := s["broker"].(map[string]any)["routes"].([]any)
	if len(routes) == 0 {
		b.Fatalf("the status has no route: %v", s["broker"])
	}
	n, _ := routes[0].(map[string]any)[name].(float64)
	return n
}

// TestBrokerCrash: while there is no broker, connections are refused, and soon there is one again.
func TestBrokerCrash(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{})
	time.Sleep(time.Second) // it has started for good
	p := b.Process()
	p.Signal(t, unix.SIGKILL)
	t.Logf("served again %v after a crash", serves(b, "a crash").Round(time.Millisecond))
}

// TestBrokerHung: a broker that is stopped is replaced. What waits for it ends.
func TestBrokerHung(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{})
	p := b.Process()
	p.Stop(t)
	if q := b.Prompt(append(b.Ask(), "-timeout", "60s")...); q.OK {
		t.Errorf("a stopped broker answers: %s", q)
	}
	serves(b, "a hang")
	if now := b.Process(); now.Host == p.Host {
		t.Error("it is the one that was stopped")
	}
	b.Audited("its end", func(e rig.Event) bool { return e.Kind == "guard" && strings.Contains(e.Reason, "broker ended") })
}

// TestBrokerStreamCut: a stream that is under way when the broker ends is seen to be cut.
func TestBrokerStreamCut(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{})
	b.Model.Delay = 2 * time.Second
	streamed := strings.Replace(rig.Prompt, "{", `{"stream":true,`, 1)
	done := make(chan lab.Poke)
	go func() {
		args := append([]string{"http", "-timeout", "60s", "-method", "POST", "-body", streamed, "-header", "content-type: application/json", "-header", "anthropic-version: 2023-06-01"}, b.Ask()...)
		done <- b.Poke(append(args, b.Base+"/v1/messages")...)
	}()
	if !rig.Eventually(30*time.Second, func() bool { return len(b.Lab.Web.Requests("api.anthropic.com")) > 0 }) {
		t.Fatal("the model was not asked")
	}
	time.Sleep(500 * time.Millisecond)
	b.Process().Signal(t, unix.SIGKILL)
	if p := <-done; p.OK {
		t.Errorf("the cut stream looks whole: %s", p)
	}
}

// TestBrokerRotation: another key in the file is used soon, and from then on alone. One that is no good is not.
func TestBrokerRotation(t *testing.T) {
	b := broker(t, "", lab.BoxOptions{})
	b.Model.Key = ""
	rotate := func(key string) {
		t.Helper()
		rig.Must(t, b.Box.WriteFile("/run/secrets/anthropic.new", []byte(key), 0o400))
		if r := b.Root("mv", "/run/secrets/anthropic.new", "/run/secrets/anthropic"); r.Code != 0 {
			t.Fatal(r)
		}
	}
	used := func() string {
		t.Helper()
		if p := b.Prompt(b.Ask()...); !p.OK {
			t.Fatalf("a request was lost: %s", p)
		}
		all := b.Lab.Web.Requests("api.anthropic.com")
		return all[len(all)-1].Header.Get("X-Api-Key")
	}
	before := b.Process()
	for i := range 3 {
		next := fmt.Sprintf("%s-%d", rig.BrokerKey, i)
		rotate(next)
		if !rig.Eventually(20*time.Second, func() bool { return used() == next }) {
			t.Fatalf("key %d is not used", i)
		}
		if got := used(); got != next {
			t.Errorf("then %q again", got)
		}
	}
	rotate("two\nlines\n")
	if !rig.Eventually(20*time.Second, func() bool {
		s, _ := b.Status()
		return strings.Contains(fmt.Sprint(s["broker"]), "printable ASCII")
	}) {
		t.Error("the status does not say that the last one is no good")
	}
	if got := used(); got != rig.BrokerKey+"-2" {
		t.Errorf("with a bad file, %q is used", got)
	}
	if now := b.Process(); now.Host != before.Host {
		t.Error("the broker was replaced")
	}
	keyless(b)
}

// TestBrokerLimits: what was spent is counted by the keeper: no end of a broker gives it back.
func TestBrokerLimits(t *testing.T) {
	b := broker(t, "    limits: {tokens_per_day: 40}\n", lab.BoxOptions{})
	spend := func() (n int) {
		for ; n < 20; n++ {
			if p := b.Prompt(b.Ask()...); !p.OK {
				if !strings.Contains(fmt.Sprint(p.Detail["body"]), "broker.anthropic.limits.tokens_per_day") {
					t.Errorf("refused for another reason: %s", p)
				}
				break
			}
		}
		return n
	}
	if n := spend(); n == 0 || n == 20 {
		t.Fatalf("%d requests were let through", n)
	}
	before := b.Process()
	before.Signal(t, unix.SIGKILL)
	if !rig.Eventually(20*time.Second, func() bool { now := b.Brokers(); return len(now) == 1 && now[0].Host != before.Host }) {
		t.Fatal("there is no next broker")
	}
	if !rig.Eventually(20*time.Second, func() bool {
		p := b.Prompt(b.Ask()...)
		return p.OK || strings.Contains(fmt.Sprint(p.Detail["body"]), "tokens_per_day")
	}) {
		t.Fatal("the next broker does not serve")
	}
	if n := spend(); n != 0 {
		t.Errorf("the next broker let %d requests through", n)
	}
}
