package broker

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/forge"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/pkg/route"
)

// apache is a site as git-http-backend(1) has it.
const apache = `
ServerRoot %[1]s
PidFile %[1]s/pid
ErrorLog %[1]s/log
Listen %[2]s
ServerName api.test
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
LoadModule env_module /usr/lib/apache2/modules/mod_env.so
LoadModule setenvif_module /usr/lib/apache2/modules/mod_setenvif.so
LoadModule cgid_module /usr/lib/apache2/modules/mod_cgid.so
LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so
LoadModule http2_module /usr/lib/apache2/modules/mod_http2.so
ScriptSock %[1]s/cgid.sock
Protocols %[4]s
SSLEngine on
SSLCertificateFile %[1]s/cert.pem
SetEnv GIT_PROJECT_ROOT %[3]s
SetEnv GIT_HTTP_EXPORT_ALL 1
SetEnv REMOTE_USER agent
SetEnv GIT_CONFIG_COUNT 1
SetEnv GIT_CONFIG_KEY_0 safe.directory
SetEnv GIT_CONFIG_VALUE_0 *
SetEnvIf Git-Protocol ".*" GIT_PROTOCOL=$0
ScriptAlias / %[5]s/
<Directory %[5]s>
  Options +ExecCGI
  Require expr %%{HTTP:Authorization} == 'Basic %[6]s'
</Directory>
`

// TestPeerApache clones and pushes by way of Apache, also what is larger than a request that git sends in one piece.
func TestPeerApache(t *testing.T) {
	server := mustrun.Tool(t, "/usr/sbin/apache2")
	for _, protocols := range []string{"http/1.1", "h2 http/1.1"} {
		t.Run(strings.Fields(protocols)[0], func(t *testing.T) {
			f := forge.New(t, "x-access-token", canary)
			at := f.Repo(t, "org/one.git")
			if out, err := exec.Command("chmod", "-R", "a+rwX", f.Root, filepath.Dir(f.Root)).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			dir, ca := t.TempDir(), newAuthority(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			addr := l.Addr().String()
			l.Close()
			cert := ca.sign(t, "api.test", time.Now().Add(time.Hour))
			key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
			if err != nil {
				t.Fatal(err)
			}
			both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
			config := fmt.Sprintf(apache, dir, addr, f.Root, protocols, filepath.Dir(f.Backend()), base64.StdEncoding.EncodeToString([]byte("x-access-token:"+canary)))
			for name, data := range map[string][]byte{"cert.pem": both, "conf": []byte(config)} {
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := exec.Command(server, "-f", filepath.Join(dir, "conf"), "-DFOREGROUND")
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				c.Process.Signal(os.Interrupt)
				c.Wait()
				if t.Failed() {
					log, _ := os.ReadFile(filepath.Join(dir, "log"))
					t.Logf("Apache says %s", log)
				}
			})
			for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				if conn, err := net.Dial("tcp", addr); err == nil {
					conn.Close()
					break
				} else if time.Since(begun) > patience {
					t.Fatal(err)
				}
			}
			rt, _ := route.Builtin("github")
			rt.To, rt.Git = "https://api.test/git-http-backend/", route.Git{Write: true, Branches: []string{"agent/*"}}
			r := newRig(t, dialing(addr), nil)
			if err := r.Load(Loaded{Routes: []route.Route{rt}, Credentials: map[string][]byte{"github": []byte(canary)}, Roots: ca.pool()}); err != nil {
				t.Fatal(err)
			}
			w := newWorkplace(t, r)
			w.git("clone", "-q", "https://github.com/org/one", ".")
			w.write("noise", noise(4<<20))
			w.git("add", ".")
			w.git("commit", "-q", "-m", "noise")
			w.git("push", "-q", "origin", "HEAD:agent/x")
			w.fails("is not among", "push", "origin", "HEAD:main")
			again := newWorkplace(t, r)
			again.git("clone", "-q", "--depth=1", "--branch=agent/x", "https://github.com/org/one", ".")
			if refs := f.Refs(t, at); strings.Join(refs, " ") != "agent/x main" {
				t.Errorf("the server has %s", refs)
			}
		})
	}
}
