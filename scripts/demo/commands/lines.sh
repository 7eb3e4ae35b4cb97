wc -l < "$file" | tr -d ' '
