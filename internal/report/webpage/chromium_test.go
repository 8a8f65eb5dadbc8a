package webpage

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// chromium opens a page in a namespace without a network: the browser itself would ask for updates. It returns what the
// browser prints.
func chromium(t *testing.T, page []byte, flags ...string) []byte {
	t.Helper()
	mustrun.Root(t)
	unshare, browser := mustrun.Tool(t, "unshare"), mustrun.Tool(t, "chromium")
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, page, 0o644); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-n", browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--user-data-dir=" + filepath.Join(dir, "profile"), "--force-color-profile=srgb"}, flags...)
	cmd := exec.CommandContext(t.Context(), unshare, append(args, "file://"+file)...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "TZ=UTC")
	cmd.WaitDelay = time.Minute
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("chromium: %v\n%s", err, errs.Bytes())
	}
	return out
}

// shot is a picture of a page.
func shot(t *testing.T, page []byte, width, height int, flags ...string) (image.Image, []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shot.png")
	chromium(t, page, append(flags, "--screenshot="+file, fmt.Sprintf("--window-size=%d,%d", width, height))...)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return img, data
}

const (
	light = "--blink-settings=preferredColorScheme=1"
	dark  = "--blink-settings=preferredColorScheme=0"
)

// TestPeerChromiumHostile: in a real browser nothing of a log runs, loads, or becomes an element.
func TestPeerChromiumHostile(t *testing.T) {
	log := filepath.Join(t.TempDir(), "net.json")
	page := made(t, hostile(t))
	dom := chromium(t, page, "--dump-dom", "--virtual-time-budget=5000", "--log-net-log="+log)
	for what := range inventory(t, dom) {
		if !slices.Contains(ours, what) {
			t.Errorf("there is %s", what)
		}
	}
	if !bytes.Contains(dom, []byte("<title>agent-init report</title>")) {
		t.Error("something has set the title")
	}
	net, err := os.ReadFile(log)
	if err != nil || len(net) == 0 {
		t.Fatalf("the browser's log: %v", err)
	}
	if bytes.Contains(net, []byte("evil.test")) {
		t.Error("the browser has asked for what stands in a log")
	}
}

// TestPeerChromiumNotices shows that the test above can fail: where texts are markup and there is no policy, the attacks work.
func TestPeerChromiumNotices(t *testing.T) {
	log := filepath.Join(t.TempDir(), "net.json")
	dom := chromium(t, []byte("<!doctype html><title>t</title><body>"+attacks[1]+attacks[8]), "--dump-dom", "--virtual-time-budget=5000", "--log-net-log="+log)
	net, err := os.ReadFile(log)
	if err != nil || !bytes.Contains(net, []byte("evil.test")) || !bytes.Contains(dom, []byte("<title>owned</title>")) {
		t.Errorf("%v, %s", err, dom)
	}
}

// theScreen is what docs/report.md shows of a page.
const theScreen = "../../../docs/report.png"

// TestPeerChromiumScreen: the page looks as docs/report.md shows it, but for what fonts make of it. AGENT_INIT_GOLDEN=write
// makes the picture.
func TestPeerChromiumScreen(t *testing.T) {
	got, data := shot(t, made(t, aRun), 1180, 1420, light, "--force-device-scale-factor=0.62")
	if os.Getenv("AGENT_INIT_GOLDEN") == "write" {
		if err := os.WriteFile(theScreen, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Open(theScreen)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	want, err := png.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	if far := apart(got, want); far > 0.02 {
		t.Errorf("%.3f apart from %s: if the page was changed, AGENT_INIT_GOLDEN=write makes the picture anew", far, theScreen)
	}
	other, _ := shot(t, made(t, hostile(t)), 1180, 1420, light, "--force-device-scale-factor=0.62")
	if far := apart(other, want); far < 0.04 {
		t.Errorf("another page is just %.3f apart", far)
	}
}

// apart is how much two pictures differ, from 0 to 1, in areas that are larger than letters.
func apart(a, b image.Image) float64 {
	const n = 40
	sum := 0.0
	for y := range n {
		for x := range n {
			p, q := area(a, x, y, n), area(b, x, y, n)
			for i := range p {
				sum += max(p[i]-q[i], q[i]-p[i])
			}
		}
	}
	return sum / (3 * n * n)
}

// area is the mean colour of one of n×n parts of a picture.
func area(img image.Image, x, y, n int) (mean [3]float64) {
	size := img.Bounds().Size()
	part := image.Rect(x*size.X/n, y*size.Y/n, (x+1)*size.X/n, (y+1)*size.Y/n)
	for py := part.Min.Y; py < part.Max.Y; py++ {
		for px := part.Min.X; px < part.Max.X; px++ {
			r, g, b, _ := img.At(px, py).RGBA()
			for i, v := range []uint32{r, g, b} {
				mean[i] += float64(v) / 0xffff / float64(part.Dx()*part.Dy())
			}
		}
	}
	return mean
}

// TestPeerChromiumShades: a page is light or dark as its reader likes it, at the width of a desk and of a hand, and nothing
// of a hostile one is wider than that.
func TestPeerChromiumShades(t *testing.T) {
	run, bad := made(t, aRun), made(t, hostile(t))
	for _, c := range []struct {
		what  string
		page  []byte
		shade string
		paper color.RGBA
		width int
	}{
		{"a run", run, light, lightPaper, 1600}, {"a run", run, dark, darkPaper, 420},
		{"a hostile one", bad, dark, darkPaper, 1600}, {"a hostile one", bad, light, lightPaper, 420},
	} {
		img, _ := shot(t, c.page, c.width, 1400, c.shade)
		for y := 400; y < 1400; y++ { // below the head, which goes from side to side
			if got := color.RGBAModel.Convert(img.At(c.width-3, y)); got != c.paper {
				t.Errorf("%s, %s, %d wide: %v at the right of line %d", c.what, c.shade, c.width, got, y)
				break
			}
		}
		if !has(img, c.shade) {
			t.Errorf("%s, %s, %d wide: no bar is to be seen", c.what, c.shade, c.width)
		}
	}
}

var (
	lightPaper = color.RGBA{0xf6, 0xf7, 0xf9, 0xff}
	darkPaper  = color.RGBA{0x0f, 0x14, 0x1b, 0xff}
)

// has says whether a picture has the colour of bars.
func has(img image.Image, flag string) bool {
	bar := map[string]color.RGBA{light: {0x25, 0x63, 0xb8, 0xff}, dark: {0x5e, 0xa2, 0xef, 0xff}}[flag]
	n := 0
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			if color.RGBAModel.Convert(img.At(x, y)) == bar {
				n++
			}
		}
	}
	return n > 200
}

// TestPeerChromiumPrint: what is folded on the screen is on the paper.
func TestPeerChromiumPrint(t *testing.T) {
	page := string(made(t, aRun))
	_, rest, _ := strings.Cut(page, "<meta http-equiv")
	_, rest, ok := strings.Cut(rest, ">")
	if !ok {
		t.Fatal("there is no policy")
	}
	free := "<!doctype html><meta charset=utf-8>" + rest // so that another style may stand in it
	paper := func(page string) int {
		file := filepath.Join(t.TempDir(), "page.pdf")
		chromium(t, []byte(page), "--print-to-pdf="+file, "--no-pdf-header-footer")
		data, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(data, []byte("%PDF")) {
			t.Fatalf("%v, %.10q", err, data)
		}
		return len(data)
	}
	whole, folded := paper(page), paper(strings.ReplaceAll(free, "content-visibility:visible", ""))
	if whole < folded+1000 {
		t.Errorf("the page prints in %d bytes, and in %d without what is folded", whole, folded)
	}
}
