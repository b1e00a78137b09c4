//! Text as Slack delivers it, turned into the plain text that its author saw.
//!
//! Slack puts references into angle brackets and writes `&`, `<` and `>` as entities.

/// Returns the plain text; mentions of `own_user` are left out.
pub(crate) fn plain(text: &str, own_user: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        out.push_str(before);
        let Some((reference, after)) = after.split_once('>') else {
            out.push('<');
            rest = after;
            continue;
        };
        out.push_str(&shown(reference, own_user));
        rest = after;
    }
    out.push_str(rest);
    let out = out.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let lines: Vec<_> = out.lines().map(str::trim_end).collect();
    lines.join("\n").trim().to_owned()
}

/// Whether the text mentions `user`.
pub(crate) fn mentions(text: &str, user: &str) -> bool {
    text.contains(&format!("<@{user}>")) || text.contains(&format!("<@{user}|"))
}

/// Whether the text mentions some user.
pub(crate) fn mentions_someone(text: &str) -> bool {
    text.contains("<@U") || text.contains("<@W")
}

/// What a client shows for the inside of `<…>`.
fn shown(reference: &str, own_user: &str) -> String {
    let (target, label) = match reference.split_once('|') {
        Some((target, label)) => (target, Some(label).filter(|label| !label.is_empty())),
        None => (reference, None),
    };
    if let Some(user) = target.strip_prefix('@') {
        return if user == own_user { String::new() } else { format!("@{}", label.unwrap_or(user)) };
    }
    if let Some(channel) = target.strip_prefix('#') {
        return format!("#{}", label.unwrap_or(channel));
    }
    if let Some(word) = target.strip_prefix('!') {
        if let Some(label) = label {
            return label.to_owned();
        }
        let word = word.split('^').next().unwrap_or(word);
        return format!("@{word}");
    }
    let address = target.strip_prefix("mailto:").or_else(|| target.strip_prefix("tel:"));
    match (label, address) {
        (Some(label), Some(address)) if label == address => address.to_owned(),
        (Some(label), None) if target == label || target.ends_with(&format!("://{label}")) => target.to_owned(),
        (Some(label), None) if target.trim_end_matches('/').ends_with(&format!("://{label}")) => target.to_owned(),
        (Some(label), _) => format!("{label} ({})", address.unwrap_or(target)),
        (None, _) => address.unwrap_or(target).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_become_what_their_author_saw() {
        for (text, expected) in [
            ("<@UBOT> how many?", "how many?"),
            ("hey <@UBOT|helper>, <@U2> and <@U3|ann>", "hey , @U2 and @ann"),
            ("in <#C1|general> or <#C2|> or <#C3>", "in #general or #C2 or #C3"),
            ("<!here> <!subteam^S1|@ops> <!subteam^S1> <!date^1^{date}|today>", "@here @ops @subteam today"),
            ("see <https://x.example/a?b=1&amp;c=2>", "see https://x.example/a?b=1&c=2"),
            ("see <http://x.example|x.example>", "see http://x.example"),
            ("see <http://x.example/|x.example>", "see http://x.example/"),
            ("see <https://x.example|the docs>", "see the docs (https://x.example)"),
            ("<mailto:a@b.example|a@b.example>", "a@b.example"),
            ("a &lt;b&gt; &amp;amp; 1 < 2", "a <b> &amp; 1 < 2"),
            ("<@UBOT> !status  \n next", "!status\n next"),
            ("unclosed <https://x", "unclosed <https://x"),
        ] {
            assert_eq!(plain(text, "UBOT"), expected, "{text}");
        }
    }

    #[test]
    fn a_mention_is_one_of_the_whole_id() {
        assert!(mentions("hi <@UBOT>", "UBOT") && mentions("hi <@UBOT|bot>", "UBOT"));
        assert!(!mentions("hi <@UBOTTLE>", "UBOT") && !mentions("UBOT", "UBOT"));
        assert!(mentions_someone("<@U9> look") && !mentions_someone("look"));
    }
}
