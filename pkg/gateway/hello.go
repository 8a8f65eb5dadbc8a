package gateway

import (
	"strings"

	"golang.org/x/crypto/cryptobyte"
)

const (
	maxHello     = 64 << 10 // bytes of records that a ClientHello may take
	recordHeader = 5
	maxFragment  = 1 << 14 // RFC 8446, section 5.1

	recordChangeCipher = 20
	recordAlert        = 21
	recordHandshake    = 22
	recordData         = 23

	messageClientHello = 1
	messageServerHello = 2

	extensionServerName = 0
	extensionESNI       = 0xffce // the drafts of what became ECH
	extensionECHDraft   = 0xfe08 // and up to
	extensionECH        = 0xfe0d // RFC 9849
)

// fragment returns the length of the record that b begins; -1 if b is too short to tell.
func fragment(b []byte) (int, error) {
	switch {
	case len(b) == 0:
		return -1, nil
	case b[0]&0x80 != 0 && len(b) < 3:
		return -1, nil
	case b[0]&0x80 != 0 && b[2] == messageClientHello:
		return 0, refusedSSL2
	case b[0] < recordChangeCipher || b[0] > recordData || len(b) > 1 && b[1] != 3:
		return 0, refusedNotTLS
	case len(b) < recordHeader:
		return -1, nil
	}
	n := int(b[3])<<8 | int(b[4])
	if b[0] == recordData && n <= maxFragment+256 || n > 0 && n <= maxFragment {
		return n, nil
	}
	return 0, refusedRecord
}

// readHello reads records from src until they hold one ClientHello, and not a byte more.
// It returns them as they came. It refuses as soon as it is clear that there won't be one.
func readHello(src *source) (raw []byte, h hello, err error) {
	var message []byte
	for {
		n, err := nextRecord(src)
		if err != nil {
			return raw, hello{}, err
		}
		record := src.held()[:recordHeader+n]
		if record[0] != recordHandshake {
			return raw, hello{}, refusedNotHello
		}
		if len(raw)+len(record) > maxHello {
			return raw, hello{}, refusedHelloSize
		}
		raw = append(raw, record...)
		message = append(message, record[recordHeader:]...)
		src.take(len(record))
		if message[0] != messageClientHello {
			return raw, hello{}, refusedNotHello
		}
		if len(message) < 4 {
			continue
		}
		size := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
		switch {
		case size > maxHello-4:
			return raw, hello{}, refusedHelloSize
		case len(message) > 4+size:
			// Nothing may follow in the same record (RFC 8446, section 5.1).
			return raw, hello{}, refusedHello
		case len(message) == 4+size:
			h, err := parseHello(message[4:])
			return raw, h, err
		}
	}
}

// nextRecord waits until src holds a whole record. Its length is without the header.
func nextRecord(src *source) (int, error) {
	for {
		b := src.held()
		n, err := fragment(b)
		if err != nil {
			return 0, err
		}
		if n >= 0 && len(b) >= recordHeader+n {
			return n, nil
		}
		if err := src.fill(); err != nil {
			return 0, ended(err, len(b) > 0)
		}
	}
}

type hello struct {
	name      string // the one server name
	encrypted bool   // there may be another one inside (RFC 9849), or none: clients that have none pretend
}

// parseHello reads a ClientHello's body (RFC 8446, section 4.1.2; RFC 6066, section 3).
func parseHello(body []byte) (hello, error) {
	c := cryptobyte.String(body)
	var session, suites, compression, extensions cryptobyte.String
	if !c.Skip(2+32) || !c.ReadUint8LengthPrefixed(&session) || // behind version and random
		!c.ReadUint16LengthPrefixed(&suites) || len(suites) == 0 || len(suites)%2 != 0 ||
		!c.ReadUint8LengthPrefixed(&compression) || len(compression) == 0 {
		return hello{}, refusedHello
	}
	if c.Empty() {
		return hello{}, refusedNoSNI
	}
	if !c.ReadUint16LengthPrefixed(&extensions) || !c.Empty() {
		return hello{}, refusedHello
	}
	var (
		seen  = make(map[uint16]bool)
		names cryptobyte.String
		found hello
	)
	for !extensions.Empty() {
		var kind uint16
		var data cryptobyte.String
		switch whole := extensions.ReadUint16(&kind) && extensions.ReadUint16LengthPrefixed(&data); {
		case !whole, seen[kind] && kind != extensionServerName:
			return hello{}, refusedHello
		case seen[kind]:
			return hello{}, refusedManySNI
		case kind == extensionServerName:
			names = data
		case kind >= extensionECHDraft && kind <= extensionECH, kind == extensionESNI:
			found.encrypted = true
		}
		seen[kind] = true
	}
	if !seen[extensionServerName] {
		return hello{}, refusedNoSNI
	}
	var err error
	found.name, err = oneName(names)
	return found, err
}

func oneName(ext cryptobyte.String) (string, error) {
	var list, name cryptobyte.String
	var kind uint8
	if !ext.ReadUint16LengthPrefixed(&list) || !ext.Empty() || !list.ReadUint8(&kind) || kind != 0 ||
		!list.ReadUint16LengthPrefixed(&name) || len(name) == 0 {
		return "", refusedSNI
	}
	if !list.Empty() {
		return "", refusedManySNI
	}
	// RFC 6066 forbids the trailing dot, and servers disagree about it.
	if s := string(name); !strings.HasSuffix(s, ".") {
		return s, nil
	}
	return "", refusedSNI
}
