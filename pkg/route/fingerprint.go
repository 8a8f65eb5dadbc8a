package route

import (
	"crypto/sha256"
	"encoding/hex"
)

// guessable is a credential that somebody may have thought up. Of those there is no fingerprint: whoever reads it could
// try at leisure which it is.
const guessable = 20

// Fingerprint tells one credential from another, for people: the first 32 bits of its SHA-256, as in
// `printf %s "$KEY" | sha256sum | cut -c1-8`.
func Fingerprint(credential []byte) string {
	if len(credential) < guessable {
		return ""
	}
	sum := sha256.Sum256(credential)
	return hex.EncodeToString(sum[:4])
}
