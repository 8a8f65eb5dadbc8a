// Package soak keeps what a long run of a confined container was seen to take of the machine: samples in a file that
// others can read too, the line that fits them, a picture, and a table for people.
package soak

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"
)

// Series are samples: columns of numbers over time.
type Series struct {
	columns []string
	rows    [][]float64 // NaN: there was nothing to see
}

// at is the column of a sample's time, in seconds since the start.
const at = "seconds"

// New returns a series with these columns, and that of the time before them.
func New(columns ...string) *Series { return &Series{columns: append([]string{at}, columns...)} }

// Add adds a sample: its time since the start, and a value for each column. What values lack was not to be seen.
func (s *Series) Add(since time.Duration, values map[string]float64) {
	row := []float64{since.Seconds()}
	for _, c := range s.columns[1:] {
		v, ok := values[c]
		if !ok {
			v = math.NaN()
		}
		row = append(row, v)
	}
	s.rows = append(s.rows, row)
}

// Len is how many samples there are.
func (s *Series) Len() int { return len(s.rows) }

// Write writes the series as CSV.
func (s *Series) Write(to io.Writer) error {
	w := csv.NewWriter(to)
	_ = w.Write(s.columns) // Flush keeps the error
	for _, row := range s.rows {
		var fields []string
		for _, v := range row {
			field := ""
			if !math.IsNaN(v) {
				field = strconv.FormatFloat(v, 'f', -1, 64)
			}
			fields = append(fields, field)
		}
		_ = w.Write(fields)
	}
	w.Flush()
	return w.Error()
}

// Read reads what Write wrote.
func Read(from io.Reader) (*Series, error) {
	lines, err := csv.NewReader(from).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 || lines[0][0] != at {
		return nil, fmt.Errorf("no samples: the first column is not %q", at)
	}
	s := &Series{columns: lines[0]}
	for i, line := range lines[1:] {
		var row []float64
		for _, field := range line {
			v := math.NaN()
			if field != "" {
				if v, err = strconv.ParseFloat(field, 64); err != nil {
					return nil, fmt.Errorf("sample %d: %w", i+1, err)
				}
			}
			row = append(row, v)
		}
		s.rows = append(s.rows, row)
	}
	return s, nil
}

// point is a sample of one column.
type point struct{ at, value float64 }

// points are the samples of a column that were to be seen, from the time begin on.
func (s *Series) points(column string, begin float64) (out []point) {
	i := slices.Index(s.columns, column)
	if i < 0 {
		return nil
	}
	for _, row := range s.rows {
		if row[0] >= begin && !math.IsNaN(row[i]) {
			out = append(out, point{row[0], row[i]})
		}
	}
	return out
}

// end is the time of the last sample.
func (s *Series) end() float64 {
	if len(s.rows) == 0 {
		return 0
	}
	return s.rows[len(s.rows)-1][0]
}

// Rise is by how much a column has risen in the second half: the slope of the line that fits its samples best (least
// squares), times the length of that half. One sample says little: what is measured goes up and down all the time.
func (s *Series) Rise(column string) float64 {
	points := s.points(column, s.end()/2)
	if len(points) < 2 {
		return math.NaN()
	}
	var x, y float64
	for _, p := range points {
		x, y = x+p.at, y+p.value
	}
	x, y = x/float64(len(points)), y/float64(len(points))
	var xy, xx float64
	for _, p := range points {
		xy, xx = xy+(p.at-x)*(p.value-y), xx+(p.at-x)*(p.at-x)
	}
	return xy / xx * (points[len(points)-1].at - points[0].at)
}

// Last is the last value of a column that was to be seen.
func (s *Series) Last(column string) float64 {
	points := s.points(column, 0)
	if len(points) == 0 {
		return math.NaN()
	}
	return points[len(points)-1].value
}

// spread are the least, the middle and the largest value of a column.
func (s *Series) spread(column string) (least, middle, most float64) {
	var values []float64
	for _, p := range s.points(column, 0) {
		values = append(values, p.value)
	}
	if len(values) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	slices.Sort(values)
	return values[0], values[len(values)/2], values[len(values)-1]
}
