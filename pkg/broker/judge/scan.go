package judge

import "bytes"

const (
	scanDepth = 16 // what is nested deeper is skipped: no API tells its usage there
	scanWord  = 48 // bytes of a name or a number; those that are looked for are shorter
)

// scanner reads JSON as it arrives, in bounded memory, and tells of the values that it passes. It expects it to be right,
// as what a provider answers is: it never fails, and what is wrong has no meaning.
type scanner struct {
	// tell gets each number, and each text by its length alone. The path of a value has the names of the objects around it
	// and [] for a list: "choices[].delta.content".
	tell func(path []byte, number []byte, textBytes int)

	path  []byte
	base  [scanDepth + 1]int // of path, for each list and object around
	list  [scanDepth + 1]bool
	depth int
	deep  int // lists and objects around beyond scanDepth

	inText, escaped bool
	naming          bool   // the next text is a name
	word            []byte // of a name, or of a number
	size            int    // of the text or word
}

func (s *scanner) reset() {
	tell, path, word := s.tell, s.path[:0], s.word[:0]
	*s = scanner{tell: tell, path: path, word: word}
}

func (s *scanner) write(p []byte) {
	for len(p) > 0 {
		if s.inText {
			p = s.inside(p)
			continue
		}
		switch c := p[0]; c {
		case '"':
			s.inText, s.size, s.word = true, 0, s.word[:0]
		case '{', '[':
			s.open(c == '[')
		case '}', ']':
			s.endWord()
			s.close()
		case ',':
			s.endWord()
			s.naming = s.depth > 0 && !s.list[s.depth]
		case ':', ' ', '\t', '\r', '\n':
			s.endWord()
		default:
			s.append(p[:1])
		}
		p = p[1:]
	}
}

// inside reads on in a text, and gives what is behind it.
func (s *scanner) inside(p []byte) []byte {
	if s.escaped {
		s.escaped = false
		s.append(p[:1])
		return p[1:]
	}
	end := bytes.IndexAny(p, `"\`)
	if end < 0 {
		s.append(p)
		return nil
	}
	s.append(p[:end])
	if p[end] == '\\' {
		s.append(p[end : end+1]) // so that an escaped name is none that is looked for
		s.escaped = true
		return p[end+1:]
	}
	s.inText = false
	switch {
	case s.deep > 0:
	case s.naming:
		s.naming = false
		s.path = append(s.path[:s.base[s.depth]], s.word...)
	default:
		s.tell(s.path, nil, s.size)
	}
	s.size, s.word = 0, s.word[:0]
	return p[end+1:]
}

func (s *scanner) append(p []byte) {
	s.size += len(p)
	s.word = append(s.word, p[:min(len(p), scanWord-len(s.word))]...)
}

// endWord is the end of what is no text: a number, true, false or null.
func (s *scanner) endWord() {
	if s.size > 0 && s.size <= scanWord && s.deep == 0 && s.word[0] >= '0' && s.word[0] <= '9' {
		s.tell(s.path, s.word, 0)
	}
	s.size, s.word = 0, s.word[:0]
}

func (s *scanner) open(list bool) {
	if s.depth == scanDepth {
		s.deep++
		return
	}
	if list {
		s.path = append(s.path, "[]"...)
	} else if len(s.path) > 0 {
		s.path = append(s.path, '.')
	}
	s.depth++
	s.base[s.depth], s.list[s.depth], s.naming = len(s.path), list, !list
}

func (s *scanner) close() {
	switch {
	case s.deep > 0:
		s.deep--
	case s.depth > 0:
		s.depth--
		s.path, s.naming = s.path[:s.base[s.depth]], false
	}
}
