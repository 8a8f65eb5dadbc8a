package selftest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// A report on its way from the probe, which runs as the agent, to the keeper, which
// holds CAP_NET_ADMIN: a head of fixed size, then for each check a head of fixed
// size and its texts. There is no syntax in it to parse.

type packedReport struct {
	Version uint32
	OK      uint8
	Started int64  // nanoseconds since 1970
	Micros  uint64 // that it took
	Checks  uint32
}

type packedCheck struct {
	OK      uint8
	Micros  uint64
	Lengths [packedTexts]uint16
}

const (
	packedTexts = 6
	maxChecks   = 4096
)

func (c *Check) texts() [packedTexts]*string {
	return [packedTexts]*string{&c.Name, &c.Target, &c.Family, &c.Want, &c.Got, &c.Detail}
}

// Pack returns r as ReadPacked reads it.
func (r Report) Pack() []byte {
	b := packed(nil, packedReport{Version: Version, OK: bit(r.OK), Started: r.Started.UnixNano(), Micros: micros(r.Millis), Checks: uint32(len(r.Checks))})
	for _, c := range r.Checks {
		var h packedCheck
		var text []byte
		for i, s := range c.texts() {
			*s = Clean(*s)
			h.Lengths[i] = uint16(len(*s))
			text = append(text, *s...)
		}
		h.OK, h.Micros = bit(c.OK), micros(c.Millis)
		b = append(packed(b, h), text...)
	}
	return b
}

// packed appends h, which is of fixed size: nothing in it can fail.
func packed(b []byte, h any) []byte {
	b, _ = binary.Append(b, binary.BigEndian, h)
	return b
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

func micros(millis float64) uint64 { return uint64(millis*1000 + 0.5) }

// ReadPacked reads one Report and the end of r, as a child process wrote it. It
// believes no OK that the checks don't bear out.
func ReadPacked(r io.Reader) (Report, error) {
	report, err := readPacked(r)
	if err != nil {
		return Report{}, fmt.Errorf("read self-test report: %w", err)
	}
	return report, nil
}

func readPacked(r io.Reader) (Report, error) {
	var h packedReport
	if err := binary.Read(r, binary.BigEndian, &h); err != nil {
		return Report{}, err
	}
	if h.Version != Version || h.OK > 1 || h.Checks > maxChecks {
		return Report{}, fmt.Errorf("version %d, ok %d, %d checks: not a report", h.Version, h.OK, h.Checks)
	}
	report := Report{Version: Version, Started: time.Unix(0, h.Started).UTC(), Millis: float64(h.Micros) / 1000}
	for range h.Checks {
		c, err := readCheck(r)
		if err != nil {
			return Report{}, err
		}
		report.Checks = append(report.Checks, c)
	}
	if n, err := io.ReadFull(r, make([]byte, 1)); n > 0 || err != io.EOF {
		return Report{}, errors.New("it goes on after its end")
	}
	report.OK = h.OK == 1 && report.allOK()
	return report, nil
}

func readCheck(r io.Reader) (Check, error) {
	var h packedCheck
	if err := binary.Read(r, binary.BigEndian, &h); err != nil {
		return Check{}, err
	}
	if h.OK > 1 {
		return Check{}, fmt.Errorf("ok %d: not a check", h.OK)
	}
	c := Check{Millis: float64(h.Micros) / 1000}
	for i, s := range c.texts() {
		if h.Lengths[i] > maxText {
			return Check{}, fmt.Errorf("a text of %d bytes", h.Lengths[i])
		}
		text := make([]byte, h.Lengths[i])
		if _, err := io.ReadFull(r, text); err != nil {
			return Check{}, err
		}
		*s = Clean(string(text))
	}
	c.OK = h.OK == 1 && c.Got == c.Want
	return c, nil
}
