package scorecard

import (
	"fmt"
	"slices"
	"strings"
)

// Badge is a picture, in SVG, of how many of the tried attacks leaked in any of the columns.
func Badge(columns []Column) string {
	var all Column
	for _, c := range columns {
		all.Results = slices.Concat(all.Results, c.Results)
	}
	leaks, tried := all.Count(Leaked), len(Attacks())-all.Count(Untried)
	colour := "#1b6e34"
	switch {
	case tried == 0:
		colour = "#5c5c5c"
	case leaks*10 > tried:
		colour = "#a61b1b"
	case leaks > 0:
		colour = "#8a5200"
	}
	const name = "egress scorecard"
	said := fmt.Sprintf("%d of %d attacks leak", leaks, tried)
	left, right := width(name), width(said)
	middle := func(from, to int) string { return fmt.Sprintf("%d.%d", (from+to)/2, (from+to)%2*5) }
	return strings.NewReplacer("{all}", fmt.Sprint(left+right), "{left}", fmt.Sprint(left), "{right}", fmt.Sprint(right), "{name}", name, "{said}", said,
		"{colour}", colour, "{at}", middle(0, left), "{then}", middle(left, left+right)).Replace(badge)
}

// width is about that of a text in the badge's letters, with its margins.
func width(text string) int { return len(text)*13/2 + 14 }

const badge = `<svg xmlns="http://www.w3.org/2000/svg" width="{all}" height="20" role="img" aria-label="{name}: {said}">
  <title>{name}: {said}</title>
  <rect width="{left}" height="20" fill="#444"/>
  <rect x="{left}" width="{right}" height="20" fill="{colour}"/>
  <g fill="#fff" text-anchor="middle" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="11">
    <text x="{at}" y="14">{name}</text>
    <text x="{then}" y="14">{said}</text>
  </g>
</svg>
`
