# report.awk reads what "go test -v" printed, and prints the slowest tests, and the counts. What failed tests said is words.awk's.

FNR == 1 { target = FILENAME; gsub(/^.*\/|\.log$/, "", target) }

/^ *--- (PASS|FAIL|SKIP): / {
	count[$2]++
	time = $4
	gsub(/[()s]/, "", time)
	# A test's time includes its subtests'; that of parallel ones, what they waited for the others.
	if ($0 !~ /^ /) { took[target " " $3] = time + 0 }
	next
}

END {
	print "The slowest tests:"
	for (n = 0; n < 20; n++) {
		slowest = ""
		for (name in took) if (slowest == "" || took[name] > took[slowest]) slowest = name
		if (slowest == "") break
		printf "%7.1f s  %s\n", took[slowest], slowest
		delete took[slowest]
	}
	printf "\n%d passed, %d failed, %d skipped\n", count["PASS:"], count["FAIL:"], count["SKIP:"]
}
