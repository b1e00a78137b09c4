#!/bin/sh
# An agent: asks the model for a line, carries it out, shows the model what it printed, until the model answers.
# MODEL is a program that reads the conversation so far and prints `run: LINE` or `answer: TEXT`.
set -eu
talk=$(mktemp)
trap 'rm -f "$talk"' EXIT
{ agent-magic-tool; echo "question: $1"; } > "$talk"
turn=0
while [ "$turn" -lt 20 ]; do
    turn=$((turn + 1))
    said=$("$MODEL" < "$talk")
    printf '%s\n' "$said" >> "$talk"
    case $said in "answer: "*) printf '%s\n' "${said#answer: }"; exit 0 ;; esac
    # JSON in, JSON out: no shell reads what the model wrote.
    line=$(printf '%s' "${said#run: }" | tr '\n\t' '  ' | sed 's/[\\"]/\\&/g')
    printf '{"command": "%s"}\n' "$line" | agent-magic-tool command-executor >> "$talk"
done
echo "the model has not answered after $turn turns" >&2
exit 1
