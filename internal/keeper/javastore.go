package keeper

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"unicode/utf16"
)

// What a trust store of Java's is made of (sun.security.provider.JavaKeyStore, in OpenJDK's sources). Every JVM reads it.
const (
	javaMagic    = 0xfeedfeed
	javaVersion  = 2
	javaTrusted  = 2          // an entry that is a certificate
	javaPassword = "changeit" // Java's usual one, for who gives one. It protects nothing, and has to protect nothing
	javaWhitener = "Mighty Aphrodite"
)

// writeJavaStore writes a trust store of certificates, which all count from 1970.
func writeJavaStore(w io.Writer, certificates [][]byte) error {
	var b bytes.Buffer
	number := func(numbers ...uint32) {
		for _, n := range numbers {
			_ = binary.Write(&b, binary.BigEndian, n) // a buffer takes everything
		}
	}
	text := func(s string) {
		_ = binary.Write(&b, binary.BigEndian, uint16(len(s)))
		b.WriteString(s)
	}
	number(javaMagic, javaVersion, uint32(len(certificates)))
	for i, der := range certificates {
		number(javaTrusted)
		text(fmt.Sprintf("agent-init-%d", i))
		number(0, 0) // when it was made
		text("X.509")
		number(uint32(len(der)))
		b.Write(der)
	}
	// A password is checked by this sum, which is no signature.
	sum := sha1.New()
	_ = binary.Write(sum, binary.BigEndian, utf16.Encode([]rune(javaPassword)))
	io.WriteString(sum, javaWhitener)
	sum.Write(b.Bytes())
	b.Write(sum.Sum(nil))
	_, err := w.Write(b.Bytes())
	return err
}
