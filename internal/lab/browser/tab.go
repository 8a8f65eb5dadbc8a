package browser

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"time"
)

// Tab is a page that is open.
type Tab struct {
	b                *Browser
	session, context string

	mu      sync.Mutex
	trouble []string        // errors, violations of a policy, dialogs
	asked   map[string]bool // hosts
}

// hear notes what a page should not do: fail, be refused something by its policy, open a dialog.
func (t *Tab) hear(m message) {
	var p struct {
		Entry            struct{ Level, Text, URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Type, Message string
		Request       struct{ URL string }
		URL           string
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m.Method {
	case "Runtime.exceptionThrown":
		t.trouble = append(t.trouble, p.ExceptionDetails.Text+" "+p.ExceptionDetails.Exception.Description)
	case "Log.entryAdded":
		if p.Entry.Level == "error" || p.Entry.Level == "warning" {
			t.trouble = append(t.trouble, p.Entry.Text+" "+p.Entry.URL)
		}
	case "Page.javascriptDialogOpening":
		t.trouble = append(t.trouble, "a dialog: "+p.Type+" "+p.Message)
		go t.call("Page.handleJavaScriptDialog", map[string]any{"accept": false}, nil)
	case "Network.requestWillBeSent":
		t.note(p.Request.URL)
	case "Network.webSocketCreated":
		t.note(p.URL)
	}
}

func (t *Tab) note(address string) {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		if t.asked == nil {
			t.asked = map[string]bool{}
		}
		t.asked[u.Host] = true
	}
}

// Trouble is what was noted since it was asked last.
func (t *Tab) Trouble() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.trouble
	t.trouble = nil
	return out
}

// Asked are the hosts that the page sent requests to.
func (t *Tab) Asked() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return sorted(t.asked)
}

func (t *Tab) call(method string, params, into any) error {
	if params == nil {
		params = map[string]any{}
	}
	return t.b.call(t.session, method, params, into)
}

func (t *Tab) must(method string, params, into any) {
	t.b.tb.Helper()
	t.b.must(t.call(method, params, into))
}

// Sibling is another tab of the same profile.
func (t *Tab) Sibling() *Tab {
	t.b.tb.Helper()
	return t.b.tab(t.context)
}

// Go opens an address.
func (t *Tab) Go(address string) {
	t.b.tb.Helper()
	t.must("Page.navigate", map[string]any{"url": address}, nil)
}

// Eval is what an expression is in the page, as JSON. A promise is waited for.
func (t *Tab) Eval(expression string, into any) {
	t.b.tb.Helper()
	if err := t.eval(expression, into); err != nil {
		t.b.tb.Fatal(err)
	}
}

func (t *Tab) eval(expression string, into any) error {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := t.call("Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true,
	}, &r)
	switch {
	case err != nil:
		return err
	case r.ExceptionDetails != nil:
		return fmt.Errorf("%s: %s %s", expression, r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	case into == nil || len(r.Result.Value) == 0:
		return nil
	}
	return json.Unmarshal(r.Result.Value, into)
}

// Until waits for an expression to be true in the page.
func (t *Tab) Until(expression string) {
	t.b.tb.Helper()
	end := time.Now().Add(patience)
	for {
		var yes bool
		err := t.eval("!!("+expression+")", &yes)
		if yes {
			return
		}
		if time.Now().After(end) {
			var page string
			t.eval("document.body.innerText", &page)
			t.b.tb.Fatalf("%s did not become true (%v), trouble %q; the page:\n%s", expression, err, t.Trouble(), page)
		}
		time.Sleep(50 * time.Millisecond) // nothing tells of it
	}
}

// Text is what the page shows as text.
func (t *Tab) Text() (text string) {
	t.b.tb.Helper()
	t.Eval("document.body.innerText", &text)
	return text
}

// Click presses the mouse in the middle of an element, as a person does.
func (t *Tab) Click(selector string) {
	t.b.tb.Helper()
	x, y := t.Point(selector)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		t.must("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}, nil)
	}
}

// Point moves the mouse to the middle of an element.
func (t *Tab) Point(selector string) (x, y float64) {
	t.b.tb.Helper()
	var at struct{ X, Y float64 }
	t.Eval(fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.scrollIntoView({block: 'center', behavior: 'instant'});
		const r = e.getBoundingClientRect();
		return {X: r.left + r.width / 2, Y: r.top + r.height / 2};
	})()`, selector), &at)
	t.must("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": at.X, "y": at.Y}, nil)
	return at.X, at.Y
}

// Type types text where the focus is.
func (t *Tab) Type(text string) {
	t.b.tb.Helper()
	t.must("Input.insertText", map[string]any{"text": text}, nil)
}

// Look sets the size of the page and whether the person likes it dark.
func (t *Tab) Look(width, height int, dark bool) {
	t.b.tb.Helper()
	t.must("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	t.must("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Screenshot is a picture of what is seen, as PNG.
func (t *Tab) Screenshot() []byte {
	t.b.tb.Helper()
	var r struct{ Data string }
	t.must("Page.captureScreenshot", map[string]any{"format": "png"}, &r)
	png, err := base64.StdEncoding.DecodeString(r.Data)
	t.b.must(err)
	return png
}

// Pages are the addresses of all tabs that are open.
func (t *Tab) Pages() []string {
	t.b.tb.Helper()
	return t.b.Pages()
}
