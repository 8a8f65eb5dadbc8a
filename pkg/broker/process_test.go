package broker

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/apart"
	shown "github.com/agent-init/agent-init/pkg/broker/authority"
	"github.com/agent-init/agent-init/pkg/route"
)

// roles are what the test's own program does as another process: what a process holds can't be told beside others in it.
var roles = map[string]func(){"api": beAPI, "proxy": beProxy, "inspector": beInspector}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv("BROKER_TEST_ROLE")]; role != nil {
		role()
		return
	}
	log.SetOutput(io.Discard) // as Config says
	apart.Main(m)
}

// spawn runs a role, and says what it writes first. It ends with the test.
func spawn(t testing.TB, role string, env ...string) (pid int, line string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), "BROKER_TEST_ROLE="+role), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	line, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", role, err)
	}
	return cmd.Process.Pid, strings.TrimSpace(line)
}

// untilStdin ends a role with the one who spawned it.
func untilStdin() { io.Copy(io.Discard, os.Stdin) }

// beAPI is an API with HTTP/2. A message has an event at once, and one whenever 20 s have gone by. /bulk?n=N has N bytes, and /unread
// reads none.
func beAPI() {
	t := new(testing.B)
	ca := newAuthority(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/messages", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		event := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_01\",\"type\":\"message\"," +
			"\"role\":\"assistant\",\"content\":[],\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n"
		for ; ; event = "event: ping\ndata: {\"type\": \"ping\"}\n\n" {
			if _, err := io.WriteString(w, event); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(20 * time.Second):
			}
		}
	})
	mux.HandleFunc("/bulk", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.FormValue("n"))
		block := make([]byte, 64<<10)
		for ; n > 0; n -= len(block) {
			w.Write(block)
		}
	})
	mux.HandleFunc("/unread", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/small", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Write([]byte("{}"))
	})
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{ca.sign(t, "api.test", time.Now().Add(time.Hour))}, NextProtos: []string{"h2"},
	})
	if err != nil {
		panic(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
	fmt.Printf("%s %q\n", l.Addr(), cert)
	go (&http.Server{Handler: mux, Protocols: both()}).Serve(l)
	untilStdin()
}

func both() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	return p
}

// rootsOf reads what beAPI says.
func rootsOf(line string) (addr string, roots *x509.CertPool) {
	var cert []byte
	if _, err := fmt.Sscanf(line, "%s %q", &addr, &cert); err != nil {
		panic(err)
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return addr, roots
}

// beProxy is a broker in front of the API that BROKER_TEST_API has.
func beProxy() {
	debug.SetMemoryLimit(MemoryLimit)
	if v := os.Getenv("BROKER_TEST_GOGC"); v != "" {
		n, _ := strconv.Atoi(v)
		debug.SetGCPercent(n)
	}
	addr, roots := rootsOf(os.Getenv("BROKER_TEST_API"))
	p := New(Config{Token: token, Dial: dialTo(addr), Record: func(Event) {}, Log: slog.New(slog.DiscardHandler)})
	r := opaque("r")
	r.To = "https://api.test/"
	r.Endpoints = []route.Endpoint{
		{Method: "GET", Path: "/bulk", Query: []string{"n"}}, {Method: "POST", Path: "/small", Body: route.Opaque},
	}
	anthropic, _ := route.Builtin("anthropic")
	anthropic.To = "https://api.test/"
	keys := map[string][]byte{"r": []byte(canary), "anthropic": []byte(canary)}
	if err := p.Load(Loaded{Routes: []route.Route{r, anthropic}, Credentials: keys, Roots: roots}); err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	go p.Serve(ctx, l)
	untilStdin()
	cancel()
}

// beInspector is a broker that inspects api.test in front of the API, and is handed whatever connects to it.
func beInspector() {
	debug.SetMemoryLimit(MemoryLimit)
	addr, roots := rootsOf(os.Getenv("BROKER_TEST_API"))
	ca, err := shown.New([]shown.Name{{Name: "api.test"}})
	if err != nil {
		panic(err)
	}
	p := New(Config{Token: token, Dial: dialTo(addr), Leaf: ca.Leaf, Record: func(Event) {}, Log: slog.New(slog.DiscardHandler)})
	name := route.Inspected{Name: "api.test", Port: 443, Allow: []route.Request{{Methods: []string{"GET", "POST"}, Rule: "p:1"}}}
	if err := p.Load(Loaded{Inspected: []route.Inspected{name}, Roots: roots}); err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s %q\n", l.Addr(), ca.Certificate())
	go p.Serve(context.Background())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.Inspect(Handed{Conn: c.(*net.TCPConn), Name: "api.test", To: netip.MustParseAddrPort("192.0.2.1:443"), UID: 1000})
		}
	}()
	untilStdin()
}

// privateDirty is what a process has to itself, in KiB.
func privateDirty(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var kib int
		if _, err := fmt.Sscanf(line, "Private_Dirty: %d kB", &kib); err == nil {
			return kib
		}
	}
	t.Fatal("no Private_Dirty")
	return 0
}

// processorTime is what a process has had of the processors.
func processorTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime (proc_pid_stat(5))
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}
