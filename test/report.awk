# report.awk reads what "go test -v" printed, and prints what failed tests said, the slowest tests, and the counts.

FNR == 1 { target = FILENAME; gsub(/^.*\/|\.log$/, "", target); test = "" }

/^=== (RUN|CONT|NAME) / { test = target " " $3; next }
/^=== PAUSE / { next }

/^ *--- (PASS|FAIL|SKIP): / {
	name = target " " $3
	count[$2]++
	if ($2 == "FAIL:") failed[++failures] = name
	time = $4
	gsub(/[()s]/, "", time)
	# A test's time includes its subtests'; that of parallel ones, what they waited for the others.
	if ($0 !~ /^ /) { took[name] = time + 0 }
	test = name
	next
}

test != "" && lines[test] < 200 { said[test] = said[test] $0 "\n"; lines[test]++ }

END {
	for (i = 1; i <= failures; i++) printf "\n== FAILED: %s\n%s", failed[i], said[failed[i]]
	print "\nThe slowest tests:"
	for (n = 0; n < 20; n++) {
		slowest = ""
		for (name in took) if (slowest == "" || took[name] > took[slowest]) slowest = name
		if (slowest == "") break
		printf "%7.1f s  %s\n", took[slowest], slowest
		delete took[slowest]
	}
	printf "\n%d passed, %d failed, %d skipped\n", count["PASS:"], count["FAIL:"], count["SKIP:"]
}
