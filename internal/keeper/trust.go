package keeper

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// The files by which programs trust the broker's authority, where there are inspected names.
const (
	authorityFile = "authority.pem" // it alone
	trustFile     = "trust.pem"     // the image's authorities, and it
	javaFile      = "trust.jks"     // the same for Java
	wgetFile      = "wgetrc"        // GNU Wget reads no variable but where its settings are
)

// trustVariables are those that name what a program trusts. What one named before is in the file that it names now.
var trustVariables = []string{
	"SSL_CERT_FILE", // OpenSSL, Go, Python, rustls-native-certs
	"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO",
	"CARGO_HTTP_CAINFO", "CODEX_CA_CERTIFICATE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
}

// addVariables are those that name what a program trusts besides its own list.
var addVariables = []string{"NODE_EXTRA_CA_CERTS", "DENO_CERT"}

// Java has no variable for what it trusts, but one for options. A JVM says on standard error that it has read it.
const (
	javaVariable = "JAVA_TOOL_OPTIONS"
	javaStore    = "-Djavax.net.ssl.trustStore="
	wgetVariable = "SYSTEM_WGETRC"
	wgetSettings = "/etc/wgetrc"
)

// trust has programs trust the authority that the broker has made for inspected names. The broker may be somebody else's
// by now: what it sends is written, and never read.
type trust struct {
	of    *brokerKeeper
	pace  budget.Pace                // more than a broker of ours has written
	named func() map[string][][]byte // what variables named before, by variable

	mu   sync.Mutex
	made [][]byte // the certificates of the present authority
}

func newTrust(of *brokerKeeper) *trust {
	return &trust{of: of, pace: budget.Pace{Burst: 16, Every: 10 * time.Second}, named: sync.OnceValue(of.readNamed)}
}

// certified says whether there are names that the broker shows certificates for.
func certified(s policy.Settings) bool {
	return slices.ContainsFunc(s.Inspected, func(i route.Inspected) bool { return !i.Plain })
}

// take writes what a broker has made. An error ends the broker, since nobody would trust it.
func (t *trust) take(m wire.Message) error {
	if !t.pace.Take(time.Now()) {
		return errors.New("the broker makes authorities without end")
	}
	made, err := wire.Parted(m.Text)
	if err != nil || len(made) == 0 {
		return errors.New("the broker sent no authority")
	}
	t.mu.Lock()
	t.made = made
	t.mu.Unlock()
	return t.write()
}

// authority is the certificates of the present authority, as DER; none where nothing is inspected.
func (k *brokerKeeper) authority() [][]byte {
	if k == nil || k.trust == nil {
		return nil
	}
	k.trust.mu.Lock()
	defer k.trust.mu.Unlock()
	return slices.Clone(k.trust.made)
}

// write writes all files, if there is an authority.
func (t *trust) write() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made == nil {
		return nil
	}
	k := t.of
	k.mu.Lock()
	bundle := k.roots.pem
	k.mu.Unlock()
	image := certificatesIn(bundle)
	files := map[string]func(io.Writer) error{
		authorityFile: pemOf(t.made),
		trustFile:     pemOf(image, t.made),
		javaFile:      func(w io.Writer) error { return writeJavaStore(w, slices.Concat(image, t.made)) },
		wgetFile:      t.wgetrc(),
	}
	for variable, named := range t.named() {
		files[fileOf(variable)] = pemOf(named, t.made)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := t.writeOne(name, files[name]); err != nil {
			return err
		}
	}
	return nil
}

// writeOne writes a file that everybody may read.
func (t *trust) writeOne(name string, fill func(io.Writer) error) error {
	if t.of.config.EnvFile == "" {
		return t.of.dir.WriteWith(name, 0o644, fill)
	}
	return writeBeside(filepath.Join(t.of.clientDir(), name), "beside --env-file", fill)
}

// readNamed reads what variables named that the container or the policy sets, if it is not in trustFile anyhow. A file that is not root's is not read: who writes it could have any file read.
func (k *brokerKeeper) readNamed() map[string][][]byte {
	if k.shared() {
		return nil // the agent has other variables
	}
	env, all := maps.Clone(k.config.Environ), map[string][][]byte{}
	maps.Copy(env, k.book.policy().Settings.Env)
	image := newRoots(k.config.Environ).files
	for _, variable := range slices.Concat(trustVariables, addVariables) {
		path := env[variable]
		if path == "" || slices.Contains(image, path) && !slices.Contains(addVariables, variable) {
			continue
		}
		data, err := policy.ReadTrusted(path)
		if err != nil {
			k.log.Warn("programs trust the image's authorities instead of what a variable names", "variable", variable, "error", err)
			continue
		}
		all[variable] = certificatesIn(data)
	}
	return all
}

// wgetrc is what the image has, and what to trust behind it: the last line counts.
func (t *trust) wgetrc() func(io.Writer) error {
	settings, err := policy.ReadTrusted(wgetSettings)
	if err != nil {
		settings = nil
	}
	line := "\nca_certificate = " + filepath.Join(t.of.clientDir(), trustFile) + "\n"
	return func(w io.Writer) error {
		_, err := w.Write(append(settings, line...))
		return err
	}
}

// dress has an environment name the files, where there are inspected names.
func (t *trust) dress(env map[string]string) {
	if t == nil || !certified(t.of.book.policy().Settings) {
		return
	}
	at := func(file string) string { return filepath.Join(t.of.clientDir(), file) }
	point := func(variables []string, usual string) {
		for _, variable := range variables {
			if env[variable] = at(usual); t.named()[variable] != nil {
				env[variable] = at(fileOf(variable))
			}
		}
	}
	point(trustVariables, trustFile)
	added := authorityFile
	if t.of.shared() { // nobody knows what they name in the agent's container
		added = trustFile
	}
	point(addVariables, added)
	if env[wgetVariable] == "" {
		env[wgetVariable] = at(wgetFile)
	}
	options := env[javaVariable]
	if options == "" && !t.of.shared() {
		options = t.of.config.Environ[javaVariable]
	}
	if !strings.Contains(options, javaStore) {
		env[javaVariable] = strings.TrimSpace(options + " " + javaStore + at(javaFile) + " -Djavax.net.ssl.trustStoreType=JKS")
	}
}

// fileOf is the file that a variable names which named something already.
func fileOf(variable string) string { return "trust-" + strings.ToLower(variable) + ".pem" }

// certificatesIn are the certificates in a file of root's, and nothing else that it may hold.
func certificatesIn(data []byte) (all [][]byte) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			all = append(all, block.Bytes)
		}
	}
	return all
}

// pemOf writes certificates in the form that all but Java read.
func pemOf(all ...[][]byte) func(io.Writer) error {
	return func(w io.Writer) error {
		var out bytes.Buffer
		for _, der := range slices.Concat(all...) {
			if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
				return err
			}
		}
		_, err := w.Write(out.Bytes())
		return err
	}
}
