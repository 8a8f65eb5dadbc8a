package broker

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
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
	"github.com/agent-init/agent-init/internal/lab/issuer"
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

// beAPI is an API with HTTP/2. /bulk?n=N has N bytes, and /unread reads none.
func beAPI() {
	ca := issuer.New("test authority", nil)
	mux := http.NewServeMux()
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
		Certificates: []tls.Certificate{ca.Issue(time.Now().Add(time.Hour), "api.test")}, NextProtos: []string{"h2"},
	})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s %q\n", l.Addr(), ca.PEM())
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
	addr, roots := rootsOf(os.Getenv("BROKER_TEST_API"))
	p := New(dialing(addr))
	r := opaque("r")
	r.To = "https://api.test/"
	r.Endpoints = []route.Endpoint{{Method: "POST", Path: "/small", Body: route.Opaque}}
	if err := p.Load(Loaded{Routes: []route.Route{r}, Credentials: map[string][]byte{"r": []byte(canary)}, Roots: roots}); err != nil {
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
	c := dialing(addr)
	c.Leaf = ca.Leaf
	p := New(c)
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
