package authority

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// clients ask a server at 127.0.0.1 for a name, and end with 0 if they trust what it shows. $1 is what they are to trust,
// $2 the name, and $3 the port.
var clients = map[string]string{
	"openssl": `openssl s_client -x509_strict -CAfile "$1" -no-CApath -verify_return_error -verify_hostname "$2" -servername "$2" -connect "127.0.0.1:$3" </dev/null`,
	"curl":    `curl -sS -q --noproxy '*' --cacert "$1" --resolve "$2:$3:127.0.0.1" "https://$2:$3/"`,
	// Debian's git speaks TLS by GnuTLS.
	"git": `GIT_SSL_CAINFO="$1" git -c http.curloptResolve="$2:$3:127.0.0.1" ls-remote "https://$2:$3/x"`,
	"node": `node -e '
const [ca, servername, port] = process.argv.slice(1)
require("https").get({host: "127.0.0.1", port, servername, ca: require("fs").readFileSync(ca)}, r => r.on("end", () => process.exit(0)).resume())
	.on("error", e => { console.error(e.message); process.exit(1) })' "$@"`,
	// Python 3.13 sets VERIFY_X509_STRICT by itself.
	"python3": `python3 -I -c '
import socket, ssl, sys
c = ssl.create_default_context(cafile=sys.argv[1])
c.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
c.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[3]))), server_hostname=sys.argv[2]).close()' "$@"`,
	"java": `java -Xshare:auto -XX:TieredStopAtLevel=1 "$(dirname "$1")/Ask.java" "$@"`,
}

const ask = `
import java.io.*; import java.net.*; import java.security.*; import java.security.cert.*; import javax.net.ssl.*;
public class Ask {
	public static void main(String[] args) throws Exception {
		KeyStore store = KeyStore.getInstance("PKCS12");
		store.load(null, null);
		int n = 0;
		try (InputStream in = new FileInputStream(args[0])) {
			for (java.security.cert.Certificate c : CertificateFactory.getInstance("X.509").generateCertificates(in))
				store.setCertificateEntry("ca" + n++, c);
		}
		TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
		trust.init(store);
		SSLContext context = SSLContext.getInstance("TLS");
		context.init(null, trust.getTrustManagers(), null);
		int port = Integer.parseInt(args[2]);
		SSLSocket s = (SSLSocket) context.getSocketFactory().createSocket(new Socket("127.0.0.1", port), args[1], port, true);
		SSLParameters p = s.getSSLParameters();
		p.setEndpointIdentificationAlgorithm("HTTPS");
		s.setSSLParameters(p);
		s.startHandshake();
		s.close();
	}
}
`

// TestPeerClients: a certificate that the key of the authority has signed for a name that is none of its own is
// worth nothing, whatever the client is made with. One for a name of its own is.
func TestPeerClients(t *testing.T) {
	a, err := New([]Name{{Name: "good.example"}, {Name: "wild.example", Wildcard: true}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	trusted := filepath.Join(dir, "trusted.pem")
	for file, data := range map[string]string{trusted: string(a.Certificate()), filepath.Join(dir, "Ask.java"): ask} {
		if err := os.WriteFile(file, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stolen := a.issuers[0] // by who has the broker's memory
	port := serve(t, func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if strings.HasPrefix(hello.ServerName, "evil") {
			return stolen.sign(hello.ServerName, a.leaf, a.now())
		}
		return a.Leaf(hello.ServerName)
	})
	names := map[string]bool{"good.example": true, "a.b.wild.example": true, "evil.example": false, "evilgood.example": false, "evil.test": false}
	for client, script := range clients {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			mustrun.Tool(t, client)
			for name, good := range names {
				out, err := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", trusted, name, port).CombinedOutput()
				// What git asks for is not there, which it says once it trusts who says so.
				trusts := err == nil || client == "git" && strings.Contains(string(out), "not found")
				if trusts != good {
					t.Errorf("%s: trusted is %v, want %v: %s", name, trusts, good, out)
				}
				if !good && !regexp.MustCompile("(?i)certificate|PKIX|permitted subtree").Match(out) {
					t.Errorf("%s is refused for another reason: %s", name, out)
				}
			}
		})
	}
}

// serve answers every request with 404 over TLS, and returns the port.
func serve(t *testing.T, shown func(*tls.ClientHelloInfo) (*tls.Certificate, error)) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: shown})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.NotFoundHandler(), ErrorLog: log.New(io.Discard, "", 0)}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}
