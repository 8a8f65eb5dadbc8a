#!/bin/sh
# stand-in.sh is the program in the image of an agent that can't be had: it draws, takes a line, asks a model, and ends.
set -eu
who="NAME VERSION"
if [ $# -gt 0 ]; then
	echo "$who, a stand-in"
	exit
fi
case $who in cursor*) host=api2.cursor.sh ;; *) host=api.anthropic.com ;; esac
printf '\033[2J\033[Hstand-in, ready\n> '
while read -r line && [ "$line" != /exit ]; do
	curl -fsS "https://$host/v1/messages" -d '{}' || true
	printf '\n> '
done
