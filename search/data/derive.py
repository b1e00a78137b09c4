#!/usr/bin/env python3
"""Derives the lists in this folder that are not written by hand. README.md says where the others are from.

    python3 derive.py [cc-cedict.txt]

The hand-written lists are put in order, and german-english.txt, the English words in german.tsv, is written anew. With
the text of CC-CEDICT, so are chinese-cedict.tsv and chinese-variants.tsv.

chinese-cedict.tsv has one line for each Chinese word in simplified characters: the word, a tab, and up to four senses in
English, separated by commas. chinese-variants.tsv has the simplified character of each traditional one. The lines are
sorted by their bytes, because they are searched where they lie.
"""

import collections
import pathlib
import re
import sys

MAX_ENTRIES = 75_000
MAX_SENSES = 4
MAX_WORDS_A_SENSE = 3
MAX_CHARACTERS = 5

LINE = re.compile(r"^(\S+) (\S+) \[([^\]]*)\] /(.*)/$")
# Senses that explain the word instead of translating it.
EXPLANATION = re.compile(
    r"^(cl:|also |see |old |archaic|variant|used |abbr|erhua|surname|japanese variant|equivalent|suffix|prefix|particle|"
    r"radical|kangxi|name of|pr\.|lit\.|interjection|onom|euphemism|bound form|measure word|classifier|\(onom|fig\.|idiom)"
    r"|variant of|pr\. \[|written as|same as|abbr\. |abbreviation of|see also"
)
# Entries that no request about software, mail, files, money or daily life contains.
FAR_AFIELD = re.compile(
    r"\((idiom|proverb|old|archaic|literary|dialect|slang|vulgar|religion|buddhism|zoology|botany|bird|loanword, dialect|"
    r"bird species|chinese bird|mineralogy|paleontology|tcm|chinese medicine|physics|taxonomy|coll\.|neologism)\b"
    r"|bird species of china|dynasty|\bcounty\b|prefecture|\btown\b|novel by|buddhist|sutra|taoist|genus|species of",
    re.IGNORECASE,
)
SILENT = set(
    "a an the of to in on at for with from by as and or be is are was were been being one one's oneself sb sth etc esp "
    "e.g. i.e. that this it its his her their your you he she they who which what not no do does so such very some any "
    "all into out up down over off about than also more most can may".split()
)


def senses(text):
    found = []
    for sense in re.split(r"[/;]", text):
        sense = re.sub(r"\([^)]*\)|\[[^\]]*\]", " ", sense).strip().lower()
        if not sense or EXPLANATION.search(sense) or re.search(r"[^\x00-\x7f]", sense):
            continue
        words = [word for word in re.findall(r"[a-z][a-z0-9]*(?:'[a-z]+)?", sense) if word not in SILENT]
        sense = " ".join(word.replace("'s", "").replace("'", "") for word in words)
        if words and len(words) <= MAX_WORDS_A_SENSE and sense not in found:
            found.append(sense)
    return found


def is_chinese(word):
    return all("\u3400" <= character <= "\u4dbf" or "\u4e00" <= character <= "\u9fff" for character in word)


def sort_lists(folder):
    english = set()
    for name in ["chinese.tsv", "chinese-silent.txt", "german.tsv", "german-silent.txt"]:
        lines = {}
        for line in (folder / name).read_text(encoding="utf-8").splitlines():
            word, tab, meaning = line.strip().partition("\t")
            if word:
                lines.setdefault(word, f"{word}{tab}{meaning}\n".encode())
                if name == "german.tsv":
                    english.update(re.findall("[a-z]+", meaning))
        (folder / name).write_bytes(b"".join(sorted(lines.values())))
    (folder / "german-english.txt").write_text("".join(f"{word}\n" for word in sorted(english)), encoding="utf-8")


def derive_chinese(source, folder):
    entries = collections.OrderedDict()
    simplified_of = collections.defaultdict(collections.Counter)
    for line in open(source, encoding="utf-8"):
        match = LINE.match(line.strip())
        if not match:
            continue
        traditional, simplified, pinyin, text = match.groups()
        if len(traditional) == len(simplified) and is_chinese(traditional) and is_chinese(simplified):
            for old, new in zip(traditional, simplified):
                simplified_of[old][new] += 1
        # A proper name has capitals in its transcription.
        if not is_chinese(simplified) or not 1 <= len(simplified) <= MAX_CHARACTERS or pinyin[:1].isupper():
            continue
        if FAR_AFIELD.search(text):
            continue
        known = entries.setdefault(simplified, [])
        known.extend(sense for sense in senses(text) if sense not in known)
    kept = [(word, found[:MAX_SENSES]) for word, found in entries.items() if found]
    # Longer words are rarer; the file has no other measure of how common a word is.
    kept.sort(key=lambda entry: (len(entry[0]), -len(entry[1]), entry[0]))
    print(f"{len(kept)} words, {min(len(kept), MAX_ENTRIES)} kept")
    lines = sorted(f"{word}\t{','.join(found)}\n".encode() for word, found in kept[:MAX_ENTRIES])
    (folder / "chinese-cedict.tsv").write_bytes(b"".join(lines))
    variants = []
    for old, found in simplified_of.items():
        new, _ = found.most_common(1)[0]
        # A character that is also written in simplified text stays as it is.
        if new != old and found[old] == 0:
            variants.append(f"{old}\t{new}\n".encode())
    (folder / "chinese-variants.tsv").write_bytes(b"".join(sorted(variants)))
    print(f"{len(variants)} variants")


if __name__ == "__main__":
    here = pathlib.Path(__file__).parent
    sort_lists(here)
    if len(sys.argv) > 1:
        derive_chinese(sys.argv[1], here)
