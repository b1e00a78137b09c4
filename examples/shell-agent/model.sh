#!/bin/sh
# Stands for a language model: runs a subtool, waits for it, reads a part of its result, and answers.
talk=$(cat)
id=$(printf '%s\n' "$talk" | sed -n 's/.*"tasks":\[{"id":"\([0-9a-f]*\)".*/\1/p' | tail -n 1)
words=$(printf '%s\n' "$talk" | sed -n 's/.*"output":"\([0-9]*\)\\n".*/\1/p' | tail -n 1)
case $(printf '%s\n' "$talk" | grep -c '^run: ') in
0) echo 'run: agent-magic-tool run text_count path=letter.txt' ;;
1) echo "run: agent-magic-tool wait $id" ;;
2) echo "run: agent-magic-tool read $id --jq .words" ;;
*) echo "answer: The letter has $words words." ;;
esac
