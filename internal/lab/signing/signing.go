// Package signing signs files as minisign(1) does, for tests: with a key of which nothing is kept.
package signing

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"slices"
)

// Key is a key pair.
type Key struct{ private ed25519.PrivateKey }

const id = "tests..." // of every key

// New makes a key.
func New() Key {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	return Key{private}
}

// Public is the file of the public key.
func (k Key) Public() []byte {
	public := k.private.Public().(ed25519.PublicKey)
	return fmt.Appendf(nil, "untrusted comment: minisign public key\n%s\n", encoded("Ed"+id, public))
}

// Sign is the signature of data, in the form without a hash, with a trusted comment.
func (k Key) Sign(data []byte, comment string) []byte {
	sig := ed25519.Sign(k.private, data)
	global := ed25519.Sign(k.private, slices.Concat(sig, []byte(comment)))
	return fmt.Appendf(nil, "untrusted comment: signature\n%s\ntrusted comment: %s\n%s\n", encoded("Ed"+id, sig), comment, encoded("", global))
}

func encoded(head string, b []byte) string {
	return base64.StdEncoding.EncodeToString(append([]byte(head), b...))
}
