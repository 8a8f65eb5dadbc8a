package report

import (
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
)

// Cost is what the tokens of a route come to, at prices that a person has given.
type Cost struct {
	Sum      float64 `json:"sum"`
	Unpriced uint64  `json:"unpriced_tokens"` // of models without a price
}

// price is of a million tokens, in whatever currency the person pays.
type price struct {
	pattern string
	in, out float64
}

// readPrices reads lines MODEL IN OUT, where MODEL may have stars. The first that fits counts. No prices come with
// agent-init: they change, and what one pays is between them and the provider.
func readPrices(file string) ([]price, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.New(fault.Usage, "give a file with lines such as: claude-opus-* 5 25", "%w", err)
	}
	return parsePrices(file, string(data))
}

func parsePrices(file, data string) (list []price, err error) {
	number := 0
	for line := range strings.Lines(data) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		p, ok := priceOf(fields)
		if !ok {
			return nil, fault.New(fault.Usage, "write a line as: claude-opus-* 5 25", "%s:%d is no model with its price for a million tokens in, and out", file, number)
		}
		list = append(list, p)
	}
	return list, nil
}

func priceOf(fields []string) (p price, ok bool) {
	if len(fields) != 3 {
		return p, false
	}
	_, bad := path.Match(fields[0], "")
	in, err := strconv.ParseFloat(fields[1], 64)
	out, err2 := strconv.ParseFloat(fields[2], 64)
	fits := func(f float64) bool { return f >= 0 && !math.IsInf(f, 0) }
	return price{fields[0], in, out}, bad == nil && err == nil && err2 == nil && fits(in) && fits(out)
}

// charge puts prices on what the routes came to.
func charge(routes []Route, prices []price) {
	for i := range routes {
		r := &routes[i]
		if len(prices) == 0 || r.TokensIn+r.TokensOut == 0 {
			continue
		}
		r.Cost = &Cost{Unpriced: r.TokensIn + r.TokensOut}
		for k := range r.Models {
			m := &r.Models[k]
			sum, ok := cost(prices, m)
			if !ok {
				continue
			}
			m.Cost = &sum
			r.Cost.Sum += sum
			r.Cost.Unpriced -= min(r.Cost.Unpriced, m.TokensIn+m.TokensOut)
		}
	}
}

func cost(prices []price, m *Model) (float64, bool) {
	for _, p := range prices {
		if fits, _ := path.Match(p.pattern, m.Name); fits {
			return (float64(m.TokensIn)*p.in + float64(m.TokensOut)*p.out) / 1e6, true
		}
	}
	return 0, false
}

// String is the sum, with a sign if there were tokens that have no price.
func (c *Cost) String() string {
	switch {
	case c == nil:
		return ""
	case c.Unpriced > 0:
		return Money(c.Sum) + "+"
	}
	return Money(c.Sum)
}

// Money is a sum as it is shown: to the cent, and small ones to where they are not nothing.
func Money(sum float64) string {
	if sum > 0 && sum < 0.1 {
		return fmt.Sprintf("%.4f", sum)
	}
	return fmt.Sprintf("%.2f", sum)
}
