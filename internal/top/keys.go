package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
)

// key is one that was pressed: a character, or one with a name.
type key rune

// Keys without a character, from where Unicode has none.
const (
	keyUp key = iota + 0x110000
	keyDown
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
	keyBackTab
	keyEsc
	keyPaste  // what comes is pasted
	keyPasted // no more of it
	keyOther  // some other; for "any key"
)

const (
	keyEnter     key = '\r'
	keyTab       key = '\t'
	keyBackspace key = 0x7f
	keyInterrupt key = 3
)

// Deed is what a key asks to be done, by others than the View.
type Deed uint8

// The deeds.
const (
	Nothing Deed = iota
	Quit
	Allow
	Deny
	TurnDown
	Explain
	Record
)

// Act is a deed with what it is about.
type Act struct {
	Deed   Deed
	Target string
	Number uint32        // of a request
	Life   time.Duration // 0: until agent-init ends
	Save   bool          // for good
}

// question stands before a decision: it says in full what would be decided, and nothing that changes meanwhile changes it.
type question struct {
	act  Act
	text string
	seen bool // it was drawn, whole
}

func (q *question) answers() string {
	if q.act.Deed == TurnDown {
		return "y yes   n no"
	}
	return "1 for " + brief(grant.DefaultFor) + "   2 for this start   3 for good   n no"
}

// Key takes a key, and returns what is to be done about it.
func (v *View) Key(k key, s *Shown) Act {
	if k == keyInterrupt {
		return Act{Deed: Quit}
	}
	if k == keyPaste || k == keyPasted {
		v.pasting = k == keyPaste
		return Act{}
	}
	if v.frozen != nil {
		s = v.frozen
	}
	switch {
	case v.pasting && !v.typing: // a text from elsewhere presses no key
		return Act{}
	case v.question != nil:
		return v.answer(k)
	case v.typing:
		v.typed(k)
		return Act{}
	case v.over != nil:
		v.scroll(k)
		return Act{}
	}
	v.said = ""
	if v.moved(k, s) {
		return Act{}
	}
	return v.command(k, s)
}

func (v *View) answer(k key) Act {
	q := v.question
	act := q.act
	switch {
	case !q.seen && k != keyEsc && k != 'n' && k != 'q': // typed ahead
		return Act{}
	case len(v.asking(v.width)) > v.height-2:
		v.question = nil
		v.Say("the terminal is too small to show all of what would be decided", true)
		return Act{}
	}
	switch {
	case act.Deed == TurnDown && k == 'y':
	case act.Deed == TurnDown:
		act = Act{}
	case k == '1':
		act.Life = grant.DefaultFor
	case k == '2':
	case k == '3':
		act.Save = true
	default:
		act = Act{}
	}
	if act.Deed == Nothing && k != 'n' && k != keyEsc && k != 'q' {
		return act // some other key decides nothing, and the question stays
	}
	v.question = nil
	return act
}

// maxFilter bounds what is typed.
const maxFilter = 64

func (v *View) typed(k key) {
	switch {
	case k == keyEnter:
		v.typing = false
	case k == keyEsc:
		v.typing, v.filter = false, ""
	case k == keyBackspace || k == 8:
		if r := []rune(v.filter); len(r) > 0 {
			v.filter = string(r[:len(r)-1])
		}
	case k >= ' ' && k < keyUp && len(v.filter) < maxFilter:
		v.filter += clean(string(rune(k)))
	}
}

func (v *View) scroll(k key) {
	switch k {
	case keyUp, 'k':
		v.over.from--
	case keyDown, 'j':
		v.over.from++
	case keyPageUp:
		v.over.from -= v.height / 2
	case keyPageDown, ' ':
		v.over.from += v.height / 2
	case keyHome:
		v.over.from = 0
	default:
		v.over = nil
	}
}

// moved takes the keys that only go somewhere.
func (v *View) moved(k key, s *Shown) bool {
	c := &v.cursors[v.focus]
	p := v.of(v.focus, s)
	switch k {
	case keyUp, 'k':
		c.move(&p, -1)
	case keyDown, 'j':
		c.move(&p, 1)
	case keyPageUp:
		c.move(&p, -max(1, v.height/2))
	case keyPageDown:
		c.move(&p, max(1, v.height/2))
	case keyHome, 'g':
		c.move(&p, -p.rows)
	case keyEnd, 'G':
		c.move(&p, p.rows)
	case keyTab:
		v.turn(1)
	case keyBackTab:
		v.turn(-1)
	case '1', '2', '3', '4', '5':
		v.focus, v.turned = paneName(k-'1'), true
	default:
		return false
	}
	return true
}

func (v *View) turn(by int) { v.focus, v.turned = paneName((int(v.focus)+by+panes)%panes), true }

func (v *View) command(k key, s *Shown) Act {
	switch k {
	case 'q':
		return Act{Deed: Quit}
	case 'a', 'd':
		v.ask(k == 'a', s)
	case 'e', keyEnter:
		if t, ok := v.chosen(s); ok {
			return Act{Deed: Explain, Target: t.place}
		}
	case '/':
		v.typing = true
	case keyEsc:
		v.filter = ""
	case 's':
		v.order = order((int(v.order) + 1) % orders)
	case 'r':
		v.reverse = !v.reverse
	case 'f', ' ':
		v.freeze(s)
	case 'R':
		return Act{Deed: Record}
	case '?', 'h':
		v.over = &overlay{title: "Keys", text: help}
	}
	return Act{}
}

func (v *View) freeze(s *Shown) {
	if v.frozen != nil {
		v.frozen = nil
		return
	}
	copied := *s
	v.frozen = &copied
}

// chosen is what the selected row is about.
func (v *View) chosen(s *Shown) (target, bool) {
	p := v.of(v.focus, s)
	c := &v.cursors[v.focus]
	switch c.see(&p, max(1, p.rows)); {
	case p.rows == 0:
		v.Say("this list has nothing: Tab goes to the next one", true)
		return target{}, false
	case c.id != "" && p.id(c.at) != c.id:
		v.Say("what was selected is gone: look, and press again", true)
		return target{}, false
	}
	return p.target(c.at), true
}

// ask puts the question whether what is selected is to be allowed, or denied.
func (v *View) ask(allow bool, s *Shown) {
	t, ok := v.chosen(s)
	switch {
	case !ok:
		return
	case !s.Operator:
		v.Say("only root decides here: docker exec -it -u root CONTAINER /usr/local/bin/agent-init top. The agent can ask: agent-init request "+t.entry, true)
	case t.entry == "":
		v.Say("no entry would allow "+t.place+": agent-init explain says why", true)
	case !allow && t.number != 0:
		v.question = &question{act: Act{Deed: TurnDown, Target: t.entry, Number: t.number}, text: fmt.Sprintf("Turn down request %d, for %s?", t.number, t.entry)}
	case allow:
		v.question = &question{act: Act{Deed: Allow, Target: t.entry, Number: t.number}, text: "Allow " + t.entry + "?"}
	default:
		v.question = &question{act: Act{Deed: Deny, Target: t.entry}, text: "Deny " + t.entry + "? Open connections to it end at once."}
	}
}

// Say shows what became of a key, until the next one.
func (v *View) Say(what string, wrong bool) {
	if v.said, v.saidIt = what, good; wrong {
		v.saidIt = bad
	}
}

// Explain shows a text over the lists.
func (v *View) Explain(title, text string) {
	v.over = &overlay{title: title, text: strings.Split(strings.TrimRight(text, "\n"), "\n")}
}

// Recording shows that what is seen goes to a file; "" if it does no more.
func (v *View) Recording(file string) { v.recording = file }

var help = []string{
	"Tab, 1 to 5   go to the next list, or to connections, requests, refused, asked, leases",
	"arrows, j k   select a row; PgUp, PgDn, Home, End as well",
	"a             allow what is selected: asks for how long, and shows the whole entry (root)",
	"d             deny it, or turn a request down (root)",
	"e, Enter      explain why it is allowed or denied",
	"/             filter all lists by a word; Esc takes the filter away",
	"s, r          sort connections by rate, bytes, age, name, process; the other way round",
	"f, space      freeze what is shown, and go on",
	"R             record what is shown into a file, a line of JSON for each look; again to stop",
	"q             leave",
	"",
	"WAY           gate: the name inside is looked at. inspected: each request is. broker: over a route of the broker's.",
	"              direct: past the gate, as an entry says. address: open by its address. inbound: opened by somebody else.",
	"OUT, IN       bytes that have arrived there, and here. AGE is since it was seen first: >5m was there before top.",
	"NAME (+2)     the address is open for two other names as well; the one that was asked for last is shown",
}
