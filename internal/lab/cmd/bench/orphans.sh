#!/bin/bash
# Leaves 10,000 processes behind whose parents end before them; each lives for
# 300 ms. Counts the USR1 that it gets, and ends with 37 when USR2 comes.
heard=0
trap 'heard=$((heard + 1))' USR1
trap 'echo "heard $heard"; exit 37' USR2

mkfifo "$HOME/never" # nobody ever writes there
exec 9<>"$HOME/never"
echo begin
for ((i = 0; i < 100; i++)); do
  bash -c 'for ((j = 0; j < 100; j++)); do read -r -t 0.3 -u 9 & done'
done
echo all born
while :; do read -r -u 9; done
