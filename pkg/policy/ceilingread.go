package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedisct1/go-minisign"
)

// A ceiling is ceiling.d, with files as allowlist.d has them. Where there is a key beside it, ceiling.d has one file and
// its signature, and nothing else: so the signature is about all that the directory has, names included.
const (
	ceilingDir  = "ceiling.d"
	ceilingKey  = "ceiling.pub"
	ceilingFile = "ceiling.yaml"
	signature   = ceilingFile + ".minisig"

	maxSignature = 4 << 10 // bytes
	maxSeen      = 64
)

// Signed is what a signature says of a ceiling besides that it is whole. The zero one is of a ceiling without.
type Signed struct {
	Serial  uint64    `json:"serial"`           // one with a lower number is older
	Expires time.Time `json:"expires,omitzero"` // zero: never
}

// Expired says whether the ceiling is one that nobody answers for any more.
func (s Signed) Expired(now time.Time) bool { return !s.Expires.IsZero() && !now.Before(s.Expires) }

// ceiling reads the ceiling of a directory; nil if there is none. Its files must be root's as those of a policy are.
func (w walker) ceiling(o ReadOptions) (files []File, signed Signed, err error) {
	dir := filepath.Join(o.Ceiling, ceilingDir)
	key, err := w.read(filepath.Join(o.Ceiling, ceilingKey))
	keyed := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, signed, err
	}
	names, err := w.names(dir)
	switch missing := names == nil; {
	case err != nil:
		return nil, signed, err
	case missing && keyed:
		return nil, signed, &FileError{dir, "it is missing, and " + ceilingKey + " is there", "put the signed ceiling there: docs/ceiling.md"}
	case missing:
		return nil, signed, nil
	}
	names = slices.DeleteFunc(names, func(s string) bool { return strings.HasPrefix(s, ".") }) // a volume's own links
	if keyed {
		return w.signedCeiling(o, dir, key, names)
	}
	for _, name := range names {
		if ext := filepath.Ext(name); ext != ".txt" && ext != ".yaml" {
			why := "files of a ceiling end in .txt or .yaml"
			if ext == ".minisig" {
				why = "there is no " + ceilingKey + " beside " + ceilingDir + " to check it by"
			}
			return nil, signed, &FileError{filepath.Join(dir, name), why, "take it out, or rename it"}
		}
	}
	if len(names) == 0 || len(names) > maxFiles {
		return nil, signed, &FileError{dir, fmt.Sprintf("it has %d files", len(names)), "put the ceiling there, or take the directory out"}
	}
	total := 0
	for _, name := range names {
		f, err := w.file(o.Ceiling, ceilingDir+"/"+name, &total)
		if err != nil {
			return nil, signed, gone(err, filepath.Join(dir, name))
		}
		files = append(files, f)
	}
	return files, signed, nil
}

// gone is for a file that was there a moment ago.
func gone(err error, path string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &FileError{path, "vanished while it was read", "try again"}
	}
	return err
}

// signedCeiling reads a ceiling that has to be signed, and be none that was followed by another.
func (w walker) signedCeiling(o ReadOptions, dir string, key []byte, names []string) (files []File, signed Signed, err error) {
	sign := "sign it anew, and put " + ceilingFile + " and " + signature + " there together: docs/ceiling.md"
	refuse := func(why string) ([]File, Signed, error) { return nil, Signed{}, &FileError{dir, why, sign} }
	if want := []string{ceilingFile, signature}; !slices.Equal(names, want) {
		return refuse(fmt.Sprintf("a signed ceiling is %s, and nothing else; there is %q", strings.Join(want, " and "), names))
	}
	var parts [2][]byte
	for i, name := range names {
		if parts[i], err = w.read(filepath.Join(dir, name)); err != nil {
			return nil, Signed{}, gone(err, filepath.Join(dir, name))
		}
	}
	signed, why := verify(key, parts[0], parts[1])
	if why != "" {
		return refuse(why)
	}
	if signed.Expired(time.Now()) {
		return refuse("it has expired at " + signed.Expires.Format(time.RFC3339))
	}
	if o.SeenFile != "" {
		seen, err := w.seen(o.SeenFile)
		if err != nil {
			return nil, Signed{}, err
		}
		if signed.Serial < seen {
			return refuse(fmt.Sprintf("it is older (%d) than one that was in force before (%d)", signed.Serial, seen))
		}
	}
	return []File{{Name: ceilingDir + "/" + ceilingFile, Data: parts[0]}}, signed, nil
}

// verify says what a signature says of data, or why it is none of this key.
func verify(key, data, sig []byte) (signed Signed, why string) {
	if len(key) > maxSignature || len(sig) > maxSignature {
		return signed, "the key or the signature is no file of minisign's"
	}
	// The library reads a key behind one line, and no line end behind it.
	pub, err := minisign.DecodePublicKey(strings.TrimRight(strings.ReplaceAll(string(key), "\r", ""), "\n"))
	if err != nil {
		return signed, ceilingKey + " is no public key of minisign's"
	}
	s, err := minisign.DecodeSignature(strings.TrimRight(strings.ReplaceAll(string(sig), "\r", ""), "\n"))
	if err != nil {
		return signed, signature + " is no signature of minisign's"
	}
	if ok, err := pub.Verify(data, s); err != nil || !ok {
		return signed, "the signature is not of this file by the key in " + ceilingKey
	}
	return signedBy(strings.TrimPrefix(s.TrustedComment, "trusted comment: "))
}

// signedBy reads a trusted comment: timestamp:N, or serial:N, and expires:DATE. minisign writes the first, and file:NAME,
// by itself.
func signedBy(comment string) (signed Signed, why string) {
	number := ""
	for _, word := range strings.Fields(comment) {
		key, value, _ := strings.Cut(word, ":")
		switch key {
		case "timestamp", "serial":
			if number != "" {
				return Signed{}, "its trusted comment has two numbers"
			}
			number = value
		case "file":
			if value != ceilingFile {
				return Signed{}, "it was signed as " + shorten(value) + ", and not as " + ceilingFile
			}
		case "expires":
			at, err := time.Parse(time.DateOnly, value)
			if err != nil || !signed.Expires.IsZero() {
				return Signed{}, "expires in its trusted comment is one date, as in expires:2027-01-31"
			}
			signed.Expires = at.AddDate(0, 0, 1) // the day counts
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return Signed{}, "its trusted comment has no timestamp:NUMBER, and no serial:NUMBER"
	}
	signed.Serial = n
	return signed, ""
}

// seen is the number of the newest ceiling that was in force here; 0 if none was.
func (w walker) seen(path string) (uint64, error) {
	data, err := w.saved(path)
	if err != nil || data == nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 63)
	if err != nil || len(data) > maxSeen {
		return 0, &FileError{path, "it has no number of a ceiling in it", "write the number of the ceiling that is to be in force, or one below it"}
	}
	return n, nil
}

// Remember has signed be the newest ceiling that was in force: path is a SeenFile. The error is a *FileError.
func (s Signed) Remember(path string) error {
	if s.Serial == 0 {
		return nil
	}
	f, err := OpenSaved(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if n, err := strconv.ParseUint(strings.TrimSpace(string(f.Data)), 10, 63); err == nil && n >= s.Serial {
		return nil
	}
	return f.Replace(fmt.Appendln(nil, s.Serial))
}
