//! Names of subtools and packs: made of words, unique, and as short as the catalog demands.

use std::collections::HashSet;

/// The longest name of a subtool.
pub const MAX_NAME_CHARS: usize = 64;

/// Long words and how people shorten them: used only where a name is too long.
const SHORT_WORDS: [(&str, &str); 22] = [
    ("administration", "admin"),
    ("application", "app"),
    ("applications", "apps"),
    ("authentication", "auth"),
    ("authorization", "auth"),
    ("configuration", "config"),
    ("configurations", "configs"),
    ("database", "db"),
    ("databases", "dbs"),
    ("description", "desc"),
    ("development", "dev"),
    ("document", "doc"),
    ("documents", "docs"),
    ("environment", "env"),
    ("environments", "envs"),
    ("information", "info"),
    ("organization", "org"),
    ("organizations", "orgs"),
    ("permissions", "perms"),
    ("repositories", "repos"),
    ("repository", "repo"),
    ("specification", "spec"),
];
/// Words without which a name that is too long is still understood.
const FILLING_WORDS: [&str; 10] = ["the", "a", "an", "of", "for", "by", "in", "to", "from", "with"];

/// Separates `text` into lower-case words: at other characters than letters and digits, and before capitals.
pub fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let letters: Vec<char> = text.chars().collect();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).map(|at| letters[at]);
        let after = letters.get(index + 1);
        let starts_word = letter.is_ascii_uppercase()
            && (before.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit())
                // The last capital of an acronym belongs to the next word: `HTTPServer`.
                || before.is_some_and(|it| it.is_ascii_uppercase()) && after.is_some_and(char::is_ascii_lowercase)
                // But not its plural: `listVMs`.
                    && !(after == Some(&'s') && letters.get(index + 2).is_none_or(|it| !it.is_ascii_lowercase())));
        if !letter.is_ascii_alphanumeric() || starts_word {
            words.push(String::new());
        }
        if letter.is_ascii_alphanumeric() {
            words.last_mut().expect("it begins with one word").push(letter.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Names that are in use.
#[derive(Debug, Default)]
pub struct Names {
    taken: HashSet<String>,
    max_chars: usize,
}

impl Names {
    /// `max_chars` is the longest name that may be made; less than [`MAX_NAME_CHARS`] if a namespace goes before it.
    pub fn new(max_chars: Option<usize>) -> Self {
        Self { taken: HashSet::new(), max_chars: max_chars.unwrap_or(MAX_NAME_CHARS).clamp(8, MAX_NAME_CHARS) }
    }

    /// Makes a name of `pack` and the words of `text`, other than every name made before.
    pub fn make(&mut self, pack: &str, text: &str) -> String {
        let mut own = words(text);
        let pack = words(pack);
        if own.starts_with(&pack) {
            own.drain(..pack.len());
        }
        let mut all: Vec<String> = pack.into_iter().chain(own).collect();
        // `users_users_list`: a tag and a path often say the same.
        all.dedup();
        if all.is_empty() {
            all.push("operation".to_owned());
        }
        let base = fitted(all, self.max_chars);
        let mut name = base.clone();
        let mut number = 1;
        while !self.taken.insert(name.clone()) {
            number += 1;
            let suffix = format!("_{number}");
            let kept = base.len().min(self.max_chars - suffix.len());
            name = format!("{}{suffix}", base[..kept].trim_end_matches('_'));
        }
        name
    }
}

/// Joins `words`, made shorter step by step until they fit.
fn fitted(mut words: Vec<String>, max: usize) -> String {
    let length = |words: &[String]| words.iter().map(|word| word.len() + 1).sum::<usize>().saturating_sub(1);
    for (long, short) in SHORT_WORDS {
        if length(&words) <= max {
            break;
        }
        words.iter_mut().filter(|word| *word == long).for_each(|word| short.clone_into(word));
    }
    if length(&words) > max {
        words.retain(|word| !FILLING_WORDS.contains(&word.as_str()));
    }
    if length(&words) > max {
        // What was said already, the last of them first: `orgs_teams_members_list_for_org_teams_members`.
        let mut index = words.len();
        while length(&words) > max && index > 1 {
            index -= 1;
            if words[..index].contains(&words[index]) {
                words.remove(index);
            }
        }
    }
    // From the middle: the first words say what it is about, the last ones what is done.
    while length(&words) > max && words.len() > 4 {
        words.remove(words.len() / 2);
    }
    let mut name = words.join("_");
    name.truncate(max);
    name.trim_end_matches('_').to_owned()
}

/// Makes the name of a pack, which is also that of its file, of `text`: at most `max_words` words.
pub fn pack(text: &str, max_words: usize) -> String {
    const MAX_PACK_CHARS: usize = 24;
    const EMPTY_WORDS: [&str; 17] = [
        "api",
        "apis",
        "rest",
        "the",
        "v1",
        "v2",
        "v3",
        "v4",
        "openapi",
        "swagger",
        "specification",
        "spec",
        "service",
        "official",
        "definition",
        "documentation",
        "reference",
    ];
    // Not before capitals: a product is called `GitHub`.
    let text = text.replace("'s ", " ").replace("’s ", " ");
    let separated = text.split(|it: char| !it.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let all: Vec<_> = separated.map(str::to_lowercase).collect();
    let telling: Vec<_> = all.iter().filter(|word| !EMPTY_WORDS.contains(&word.as_str())).cloned().collect();
    let words = if telling.is_empty() { all } else { telling };
    let mut name = String::new();
    for word in words.into_iter().take(max_words) {
        if !name.is_empty() && name.len() + word.len() >= MAX_PACK_CHARS {
            break;
        }
        if !name.is_empty() {
            name.push('_');
        }
        name += &word;
    }
    name.truncate(MAX_PACK_CHARS);
    if name.is_empty() { "imported".to_owned() } else { name }
}

/// Makes the name of a pack of a host: `api.github.com` is called `github`. An address has none.
pub fn of_host(host: &str) -> Option<String> {
    const EMPTY_LABELS: [&str; 4] = ["api", "graphql", "mcp", "www"];
    let labels: Vec<_> = host.split('.').filter(|label| !EMPTY_LABELS.contains(label)).collect();
    let is_address = host.split('.').all(|label| label.bytes().all(|byte| byte.is_ascii_digit())) || host.contains(':');
    match labels.as_slice() {
        _ if is_address => None,
        [.., name, _] => Some(pack(name, 2)),
        [only] if *only != "localhost" => Some(pack(only, 2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_separated_into_words() {
        for (text, expected) in [
            ("repos/create-for-org", "repos create for org"),
            ("createAclRole", "create acl role"),
            ("GET /users/{userId}.json", "get users user id json"),
            ("HTTPServer2Name", "http server2 name"),
            ("listVMs", "list vms"),
            ("gmail.users.messages.list", "gmail users messages list"),
            ("Größe", "gr e"),
        ] {
            assert_eq!(words(text).join(" "), expected, "{text}");
        }
    }

    #[test]
    fn names_are_unique_and_fit() {
        let mut names = Names::new(None);
        assert_eq!(names.make("github", "repos/get"), "github_repos_get");
        assert_eq!(names.make("github", "repos/get"), "github_repos_get_2");
        assert_eq!(names.make("gmail", "gmail.users.messages.list"), "gmail_users_messages_list");
        assert_eq!(names.make("pets", "///"), "pets");
        assert_eq!(names.make("", ""), "operation");
        let long = "actions/set-github-actions-default-workflow-permissions-organization-for-the-enterprise";
        for _ in 0..20 {
            let name = names.make("github", long);
            assert!(name.len() <= MAX_NAME_CHARS && name.starts_with("github_actions_set"), "{name}");
        }
        let mut short = Names::new(Some(20));
        for _ in 0..20 {
            assert!(short.make("github", long).len() <= 20);
        }
    }

    #[test]
    fn a_pack_is_named_by_what_tells_it_apart() {
        for (text, expected) in [
            ("GitHub v3 REST API", "github"),
            ("GitHub's official OpenAPI spec", "github"),
            ("Swagger Petstore", "petstore"),
            ("Figma API", "figma"),
            ("API", "api"),
            ("年度", "imported"),
        ] {
            assert_eq!(pack(text, 2), expected, "{text}");
        }
    }
}
