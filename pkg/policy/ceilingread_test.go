package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/signing"
	"github.com/agent-init/agent-init/internal/mustrun"
)

// ceilingIn writes files below a directory that is root's alone, and reads what is there as a ceiling.
func ceilingIn(t *testing.T, files map[string]string) (*Bundle, error) {
	t.Helper()
	mustrun.Root(t)
	dir, err := os.MkdirTemp("/root", "ceiling")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		}
		if to, link := strings.CutPrefix(text, "-> "); link && err == nil {
			err = os.Symlink(to, path)
		} else if !strings.HasSuffix(name, "/") && err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := files["ceiling.d/theirs.txt"]; ok {
		if err := os.Chown(filepath.Join(dir, "ceiling.d/theirs.txt"), 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	return Read(ReadOptions{Dir: filepath.Join(dir, "elsewhere"), Ceiling: dir, SeenFile: filepath.Join(dir, "var/ceiling/seen")})
}

func TestCeilingRead(t *testing.T) {
	key, other := signing.New(), signing.New()
	const text = "entries: any\n"
	signed := func(comment string) map[string]string {
		return map[string]string{"ceiling.pub": string(key.Public()), "ceiling.d/ceiling.yaml": text, "ceiling.d/ceiling.yaml.minisig": string(key.Sign([]byte(text), comment))}
	}
	with := func(files map[string]string, name, text string) map[string]string {
		if files[name] = text; text == "" {
			delete(files, name)
		}
		return files
	}
	next := time.Now().AddDate(0, 0, 2).Format(time.DateOnly)
	last := time.Now().AddDate(0, 0, -2).Format(time.DateOnly)
	for name, tt := range map[string]struct {
		files map[string]string
		want  string // of the error; "" for none
		names string
	}{
		"none":                   {map[string]string{"elsewhere/ceiling.d/a.txt": "a.example"}, "", ""},
		"files":                  {map[string]string{"ceiling.d/a.txt": "a.example", "ceiling.d/b.yaml": "mode: monitor"}, "", "ceiling.d/a.txt ceiling.d/b.yaml"},
		"a volume":               {map[string]string{"ceiling.d/..1/a.txt": "a.example", "ceiling.d/..data": "-> ..1", "ceiling.d/a.txt": "-> ..data/a.txt"}, "", "ceiling.d/a.txt"},
		"an empty directory":     {map[string]string{"ceiling.d/": ""}, "it has 0 files", ""},
		"another name":           {map[string]string{"ceiling.d/a.conf": "x"}, "files of a ceiling end in .txt or .yaml", ""},
		"a signature, no key":    {with(signed("timestamp:1"), "ceiling.pub", ""), "there is no ceiling.pub", ""},
		"somebody else's":        {map[string]string{"ceiling.d/theirs.txt": "a.example"}, "belongs to uid 1000", ""},
		"a key alone":            {map[string]string{"ceiling.pub": string(key.Public())}, "ceiling.d: it is missing", ""},
		"no key":                 {with(signed("timestamp:1"), "ceiling.pub", "nothing"), "no public key of minisign's", ""},
		"a wrong key":            {with(signed("timestamp:1"), "ceiling.pub", string(other.Public())), "the signature is not of this file", ""},
		"signed":                 {signed("timestamp:7\tfile:ceiling.yaml\thashed"), "", "ceiling.d/ceiling.yaml"},
		"not signed":             {with(signed("timestamp:1"), "ceiling.d/ceiling.yaml.minisig", ""), "a signed ceiling is ceiling.yaml and ceiling.yaml.minisig", ""},
		"no signature":           {with(signed("timestamp:1"), "ceiling.d/ceiling.yaml.minisig", "x"), "no signature of minisign's", ""},
		"altered":                {with(signed("timestamp:1"), "ceiling.d/ceiling.yaml", "entries: any\n\n"), "the signature is not of this file", ""},
		"an altered comment":     {with(signed("timestamp:1"), "ceiling.d/ceiling.yaml.minisig", strings.Replace(string(key.Sign([]byte(text), "timestamp:1")), "timestamp:1", "timestamp:2", 1)), "the signature is not of this file", ""},
		"another file beside it": {with(signed("timestamp:1"), "ceiling.d/more.txt", "a.example"), "and nothing else", ""},
		"under another name":     {with(with(signed("timestamp:1"), "ceiling.d/ceiling.yaml", ""), "ceiling.d/ceiling.txt", text), "and nothing else", ""},
		"signed as another":      {signed("timestamp:1 file:allowlist.txt"), "it was signed as allowlist.txt", ""},
		"without a number":       {signed("hello"), "no timestamp:NUMBER", ""},
		"two numbers":            {signed("timestamp:1 serial:2"), "two numbers", ""},
		"for a while":            {signed("serial:3 expires:" + next), "", "ceiling.d/ceiling.yaml"},
		"expired":                {signed("serial:3 expires:" + last), "it has expired", ""},
		"no date":                {signed("serial:3 expires:soon"), "expires in its trusted comment is one date", ""},
		"older":                  {with(signed("serial:3"), "var/ceiling/seen", "4\n"), "it is older (3) than one that was in force before (4)", ""},
		"the same":               {with(signed("serial:4"), "var/ceiling/seen", "4\n"), "", "ceiling.d/ceiling.yaml"},
		"nothing to compare":     {with(signed("serial:4"), "var/ceiling/seen", "x"), "no number of a ceiling", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := ceilingIn(t, tt.files)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.As(err, new(*CeilingError)) {
					t.Errorf("%v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range b.Ceiling {
				names = append(names, f.Name)
			}
			if strings.Join(names, " ") != tt.names || len(b.Files) > 0 {
				t.Errorf("it has %q and %v", names, b.Files)
			}
		})
	}
}

// What minisign 0.11 itself has signed, with its own comment.
func TestCeilingOfMinisign(t *testing.T) {
	var parts [3][]byte
	for i, name := range []string{"ceiling.pub", "ceiling.yaml", "ceiling.yaml.minisig"} {
		var err error
		if parts[i], err = os.ReadFile("testdata/signed/" + name); err != nil {
			t.Fatal(err)
		}
	}
	if signed, why := verify(parts[0], parts[1], parts[2]); why != "" || signed.Serial < 1_700_000_000 || !signed.Expires.IsZero() {
		t.Errorf("%+v: %s", signed, why)
	}
	if _, why := verify(parts[0], append(parts[1], '\n'), parts[2]); why == "" {
		t.Error("altered, it passes")
	}
}

// The number of a ceiling that was in force only grows.
func TestCeilingRemembered(t *testing.T) {
	mustrun.Root(t)
	dir, err := os.MkdirTemp("/root", "ceiling")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "ceiling/seen")
	for _, step := range []struct{ serial, want uint64 }{{0, 0}, {5, 5}, {4, 5}, {6, 6}} {
		if err := (Signed{Serial: step.serial}).Remember(path); err != nil {
			t.Fatal(err)
		}
		if n, err := (walker{}).seen(path); err != nil || n != step.want {
			t.Errorf("after %d it is %d, %v", step.serial, n, err)
		}
	}
}

// FuzzSigned: whatever stands in a key and a signature, nothing is taken for signed.
func FuzzSigned(f *testing.F) {
	key := signing.New()
	f.Add(string(key.Public()), string(key.Sign([]byte("other"), "timestamp:1")), "timestamp:1 expires:2027-01-31 file:ceiling.yaml")
	f.Add("a\n", "\n\n\n", "serial:99999999999999999999 expires:0000-00-00")
	f.Fuzz(func(t *testing.T, pub, sig, comment string) {
		if _, why := verify([]byte(pub), []byte("entries: any\n"), []byte(sig)); why == "" {
			t.Fatalf("%q signs by %q", sig, pub)
		}
		if s, why := signedBy(comment); why == "" && (strings.Count(comment, "timestamp:")+strings.Count(comment, "serial:") == 0 || s.Serial > 1<<63) {
			t.Fatalf("%q has %+v", comment, s)
		}
	})
}
