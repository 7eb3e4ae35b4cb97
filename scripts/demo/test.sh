#!/bin/sh
# Runs every test in tests/, each a script that exits 0, and counts.
cd "$(dirname "$0")" || exit 1
passed=0 failed=0
for test in tests/*.sh; do
    if sh "$test"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $test"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
