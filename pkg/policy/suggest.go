package policy

// Nearest returns the candidate that word was probably meant to be, or "".
func Nearest(word string, candidates []string) string {
	best, bestAt := "", 3
	if len(word) < 5 {
		bestAt = 2
	}
	for _, c := range candidates {
		if d := distance(word, c, bestAt); d < bestAt {
			best, bestAt = c, d
		}
	}
	return best
}

// distance returns the number of letters to insert, delete, replace or swap
// with their neighbour to make b of a, or limit if there are as many or more.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return min(row[len(b)], limit)
}
