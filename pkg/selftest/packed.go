package selftest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// A report on its way from the probe, which runs as the agent, to the keeper, which holds CAP_NET_ADMIN: a head of
// fixed size, then for each check a head of fixed size and its texts. There is no syntax, and no verdict.

type packedReport struct {
	Version uint32
	Started int64  // nanoseconds since 1970
	Micros  uint64 // that it took
	Checks  uint32
}

type packedCheck struct {
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
	b := packed(nil, packedReport{Version, r.Started.UnixNano(), micros(r.Millis), uint32(len(r.Checks))})
	for _, c := range r.Checks {
		h := packedCheck{Micros: micros(c.Millis)}
		var text []byte
		for i, s := range c.texts() {
			*s = Clean(*s)
			h.Lengths[i] = uint16(len(*s))
			text = append(text, *s...)
		}
		b = append(packed(b, h), text...)
	}
	return b
}

// packed appends h, which is of fixed size: nothing in it can fail.
func packed(b []byte, h any) []byte {
	b, _ = binary.Append(b, binary.BigEndian, h)
	return b
}

func micros(millis float64) uint64 { return uint64(millis*1000 + 0.5) }

// ReadPacked reads one Report and the end of r, as a child process wrote it.
func ReadPacked(r io.Reader) (Report, error) {
	report, err := readPacked(r)
	if err != nil {
		return Report{}, fmt.Errorf("read self-test report: %w", err)
	}
	return report, nil
}

func readPacked(r io.Reader) (report Report, err error) {
	var h packedReport
	if err := binary.Read(r, binary.BigEndian, &h); err != nil {
		return report, err
	}
	if h.Version != Version || h.Checks > maxChecks {
		return report, fmt.Errorf("version %d, %d checks: not a report", h.Version, h.Checks)
	}
	report = Report{Version: Version, Started: time.Unix(0, h.Started).UTC(), Millis: float64(h.Micros) / 1000, Checks: make([]Check, h.Checks)}
	for i := range report.Checks {
		if err := report.Checks[i].read(r); err != nil {
			return report, err
		}
	}
	if n, err := io.ReadFull(r, make([]byte, 1)); n > 0 || err != io.EOF {
		return report, errors.New("it goes on after its end")
	}
	report.OK = report.allOK()
	return report, nil
}

func (c *Check) read(r io.Reader) error {
	var h packedCheck
	if err := binary.Read(r, binary.BigEndian, &h); err != nil {
		return err
	}
	for i, s := range c.texts() {
		if h.Lengths[i] > maxText {
			return fmt.Errorf("a text of %d bytes", h.Lengths[i])
		}
		text := make([]byte, h.Lengths[i])
		if _, err := io.ReadFull(r, text); err != nil {
			return err
		}
		*s = Clean(string(text))
	}
	c.OK, c.Millis = c.Got == c.Want, float64(h.Micros)/1000
	return nil
}
