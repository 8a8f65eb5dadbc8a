package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// hunt looks for secrets wherever this process may read. They are given in hex and reversed, so that the hunter's own
// command line, and that of whoever has sent it, is no find.
func hunt(args []string) (detail, error) {
	flagset := flags("hunt")
	where := flagset.String("in", "environ,memory,files", "")
	looks := flagset.Int("n", 1, "go on until so many reads were made")
	a, err := parse(flagset, args, 1)
	if err != nil {
		return nil, err
	}
	var h hunter
	for _, masked := range a {
		secret, err := hex.DecodeString(masked)
		if err != nil {
			return nil, usage("%q isn't hex", masked)
		}
		slices.Reverse(secret)
		h.forms = append(h.forms, spellings(secret)...)
	}
	for h.looked < *looks && len(h.found) == 0 {
		for _, place := range strings.Split(*where, ",") {
			switch place {
			case "environ":
				h.processes("environ", "cmdline")
				h.file("/proc/self/environ", 4<<20)
			case "memory":
				h.memory()
			case "files":
				for _, dir := range writable {
					h.files(dir)
				}
			default:
				return nil, usage("nobody hunts in %q", place)
			}
		}
	}
	out := detail{"looked": h.looked, "bytes": h.bytes, "found": h.found}
	if len(h.found) == 0 {
		return out, fmt.Errorf("not found in %d places", h.looked)
	}
	return out, nil
}

// spellings are a secret as it is, and as somebody would write it who has to.
func spellings(secret []byte) [][]byte {
	reversed := slices.Clone(secret)
	slices.Reverse(reversed)
	out := [][]byte{secret, []byte(hex.EncodeToString(secret)), []byte(strings.ToUpper(hex.EncodeToString(secret))), []byte(url.QueryEscape(string(secret)))}
	for skip := range 3 { // where it does not begin at a group of base64
		if len(secret) > skip+3 {
			whole := (len(secret) - skip) / 3 * 3
			out = append(out, []byte(base64.StdEncoding.EncodeToString(secret[skip:skip+whole])))
		}
	}
	return out
}

// writable is where containers have files that are not of their image, and where people mount secrets.
var writable = []string{"/dev/shm", "/etc", "/home", "/run", "/var/log", "/workspace"}

type hunter struct {
	forms  [][]byte
	read   map[string]bool // processes whose memory was read: of the agent's own, which may be large
	buf    []byte
	looked int
	bytes  int64
	found  []string
}

const mostFound = 20

// reader looks through r. What crosses the border of two pieces is found too.
func (h *hunter) reader(what string, r io.Reader, limit int64) {
	h.looked++
	overlap := 0
	for _, f := range h.forms {
		overlap = max(overlap, len(f))
	}
	if h.buf == nil {
		h.buf = make([]byte, overlap+1<<20)
	}
	buf, kept := h.buf, 0
	for limit > 0 {
		n, err := r.Read(buf[kept:])
		limit, h.bytes = limit-int64(n), h.bytes+int64(n)
		piece := buf[:kept+n]
		if slices.ContainsFunc(h.forms, func(f []byte) bool { return bytes.Contains(piece, f) }) {
			if len(h.found) < mostFound {
				h.found = append(h.found, what)
			}
			return
		}
		if err != nil || n == 0 {
			return
		}
		kept = min(len(piece), overlap)
		copy(buf, piece[len(piece)-kept:])
	}
}

func (h *hunter) file(path string, limit int64) {
	f, err := os.Open(path)
	if err != nil { // a try as well
		h.looked++
		return
	}
	defer f.Close()
	h.reader(path, f, limit)
}

// others are the directories of /proc but the hunter's own.
func others() (dirs []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	for _, dir := range all {
		if !strings.HasPrefix(dir, fmt.Sprintf("/proc/%d/", os.Getpid())) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func (h *hunter) processes(files ...string) {
	for _, dir := range others() {
		for _, f := range files {
			h.file(dir+"/"+f, 4<<20)
		}
		fds, _ := filepath.Glob(dir + "/fd/[0-9]*")
		for _, fd := range fds {
			if st, err := os.Stat(fd); err == nil && st.Mode().IsRegular() { // a memfd for one
				h.file(fd, 16<<20)
			}
		}
	}
}

// memory reads what each process has mapped, but for files that anybody can read. Threads have the memory of their process.
func (h *hunter) memory() {
	for _, dir := range others() {
		of, _, _ := strings.Cut(dir, "/task/")
		if h.read[of] {
			h.looked++
			continue
		}
		maps, err := os.ReadFile(dir + "/maps")
		if err != nil {
			continue
		}
		mem, err := os.Open(dir + "/mem")
		if err != nil {
			h.looked++
			continue
		}
		for line := range strings.Lines(string(maps)) {
			fields := strings.Fields(line)
			low, high, _ := strings.Cut(fields[0], "-")
			from, err1 := strconv.ParseUint(low, 16, 63)
			to, err2 := strconv.ParseUint(high, 16, 63)
			if err1 != nil || err2 != nil || !strings.HasPrefix(fields[1], "rw") {
				continue
			}
			h.reader(dir+"/mem", io.NewSectionReader(mem, int64(from), int64(to-from)), 64<<20)
		}
		mem.Close()
		if h.read == nil {
			h.read = map[string]bool{}
		}
		h.read[of] = true
	}
}

// files looks through every file that can be opened.
func (h *hunter) files(root string) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case d.Type().IsRegular():
			h.file(path, 64<<20)
		}
		return nil
	})
}
