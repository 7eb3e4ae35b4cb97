[ "$(sh stats.sh lines sample.txt)" = 4 ]
