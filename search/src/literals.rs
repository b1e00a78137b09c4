//! Literals in a query: paths, addresses, numbers and blobs, of which only the kind says what is wanted.
//!
//! `convert /data/report.xlsx` asks for something that converts a spreadsheet; `data` and `report` are the user's words
//! for it, which a subtool's description contains only by accident.

/// What a part of a query, between spaces, counts as.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Literal<'a> {
    /// Words like any other.
    Text,
    /// Stands for these words, which the user did not write.
    Kind(Vec<&'a str>),
    /// Says nothing.
    Blob,
}

/// Longer words without a vowel or with digits in them are keys and digests.
const MIN_BLOB: usize = 16;
/// Longer host labels and names are no words.
const MAX_LABEL: usize = 24;

/// What `part` of a query is.
pub(crate) fn literal(part: &str) -> Literal<'_> {
    let part = part.trim_matches(|character: char| {
        matches!(
            character,
            '"' | '\''
                | '`'
                | '('
                | ')'
                | '['
                | ']'
                | '{'
                | '}'
                | '<'
                | '>'
                | ','
                | ';'
                | '!'
                | '?'
                | '“'
                | '”'
                | '‘'
                | '’'
        )
    });
    let part = part.trim_end_matches(['.', ':', ',', ';', '"', '\'', ')', '?', '!']);
    if let Some((scheme, rest)) = part.split_once("://")
        && scheme.chars().all(|character| character.is_ascii_alphanumeric() || character == '+')
    {
        return Literal::Kind(address(rest));
    }
    if part.starts_with("www.") {
        return Literal::Kind(address(part));
    }
    if let Some((local, host)) = part.split_once('@')
        && !local.is_empty()
        && host.contains('.')
    {
        return Literal::Kind(vec!["email"]);
    }
    if part.strip_prefix('#').is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())) {
        return Literal::Kind(vec!["issue", "number"]);
    }
    if is_commit(part) {
        return Literal::Kind(vec!["commit"]);
    }
    if is_path(part) {
        return Literal::Kind(path(part));
    }
    if is_blob(part) { Literal::Blob } else { Literal::Text }
}

/// The labels of a host, without those that say nothing, and what the file at its end is.
fn address(rest: &str) -> Vec<&str> {
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = host.split(':').next().unwrap_or_default();
    let is_label = |label: &&str| {
        (3..=MAX_LABEL).contains(&label.len())
            && !matches!(*label, "www" | "com" | "org" | "net" | "api" | "edu" | "gov" | "html" | "http" | "https")
            && label.chars().any(|character| character.is_ascii_alphabetic())
    };
    let mut words = vec!["url"];
    words.extend(host.split('.').filter(is_label));
    words.extend(extension(path).into_iter().flat_map(|extension| kinds(extension).iter().copied()));
    words
}

fn is_path(part: &str) -> bool {
    let slashes = part.matches(['/', '\\']).count();
    let begins =
        ["/", "~/", "./", "../", "\\\\"].iter().any(|begin| part.starts_with(begin) && part.len() > begin.len());
    let drive = part.len() > 3 && part.as_bytes()[1] == b':' && matches!(part.as_bytes()[2], b'\\' | b'/');
    begins || drive || (extension(part).is_some_and(|extension| !kinds(extension).is_empty()) && slashes < 20)
}

fn path(part: &str) -> Vec<&str> {
    match extension(part) {
        Some(extension) => {
            let mut words = vec!["file"];
            words.extend(kinds(extension));
            words
        }
        None => vec!["file", "folder", "directory"],
    }
}

fn extension(path: &str) -> Option<&str> {
    let (stem, extension) = path.rsplit(['/', '\\']).next()?.rsplit_once('.')?;
    let is_extension = (1..=5).contains(&extension.len()) && extension.chars().all(|c| c.is_ascii_alphanumeric());
    (!stem.is_empty() && is_extension && extension.chars().any(|c| c.is_ascii_alphabetic())).then_some(extension)
}

/// What people call files of this extension. Empty if it is not known.
fn kinds(extension: &str) -> &'static [&'static str] {
    const KINDS: &[(&[&str], &[&str])] = &[
        (&["xlsx", "xls", "ods", "xlsm"], &["excel", "spreadsheet", "workbook"]),
        (&["csv", "tsv"], &["csv", "table", "spreadsheet"]),
        (&["docx", "doc", "odt", "rtf"], &["word", "document"]),
        (&["pptx", "ppt", "odp", "key"], &["powerpoint", "presentation", "slides"]),
        (&["pdf"], &["pdf", "document"]),
        (&["txt", "log"], &["text", "file"]),
        (&["md", "markdown"], &["markdown", "text"]),
        (&["png", "jpg", "jpeg", "gif", "webp", "bmp", "tiff", "svg", "heic", "ico"], &["image", "picture"]),
        (&["mp3", "wav", "flac", "ogg", "m4a", "aac"], &["audio", "music", "sound"]),
        (&["mp4", "mov", "avi", "mkv", "webm"], &["video"]),
        (&["zip", "tar", "gz", "tgz", "rar", "7z", "bz2", "xz"], &["archive", "zip"]),
        (&["json", "jsonl"], &["json"]),
        (&["yaml", "yml"], &["yaml"]),
        (&["toml"], &["toml"]),
        (&["ini", "conf", "cfg"], &["configuration"]),
        (&["xml"], &["xml"]),
        (&["html", "htm"], &["html", "page"]),
        (&["db", "sqlite", "sqlite3"], &["database", "sqlite"]),
        (&["sql"], &["sql", "database"]),
        (&["eml", "msg", "mbox"], &["email", "message"]),
        (&["ics"], &["calendar", "event"]),
        (&["vcf"], &["contact"]),
        (&["epub", "mobi"], &["ebook", "book"]),
        (&["ttf", "otf", "woff", "woff2"], &["font"]),
        (&["py", "rs", "js", "ts", "go", "java", "c", "cpp", "rb", "php", "sh", "ipynb"], &["code", "source"]),
        (&["pdb", "cif"], &["protein", "structure"]),
        (&["nii", "dcm"], &["medical", "image"]),
        (&["stl", "obj", "blend", "gltf"], &["model", "mesh"]),
        (&["geojson", "shp", "kml", "gpx"], &["map", "geographic"]),
    ];
    let lower = extension.to_ascii_lowercase();
    KINDS.iter().find(|(extensions, _)| extensions.contains(&lower.as_str())).map_or(&[], |(_, kinds)| kinds)
}

/// Whether `part` is the name of a commit, whole or shortened.
fn is_commit(part: &str) -> bool {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    ((7..=12).contains(&part.len()) || part.len() == 40)
        && part.chars().all(is_hex)
        && part.contains(|c: char| c.is_ascii_digit())
        && part.contains(|c: char| c.is_ascii_lowercase())
}

/// Whether `part` is a key, a digest, an id or base64.
fn is_blob(part: &str) -> bool {
    if part.len() < MIN_BLOB || !part.is_ascii() {
        return false;
    }
    let is_encoded = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '-' | '_');
    let digits = part.chars().filter(char::is_ascii_digit).count();
    let changes =
        part.as_bytes().windows(2).filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    part.chars().all(is_encoded) && (digits * 6 >= part.len() || changes.count() * 6 >= part.len() || part.len() > 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_file_of_its_kind() {
        assert_eq!(literal("/data/q3.xlsx."), Literal::Kind(vec!["file", "excel", "spreadsheet", "workbook"]));
        assert_eq!(literal("report.PDF"), Literal::Kind(vec!["file", "pdf", "document"]));
        assert_eq!(literal("~/music"), Literal::Kind(vec!["file", "folder", "directory"]));
        assert_eq!(literal("C:\\Users\\me"), Literal::Kind(vec!["file", "folder", "directory"]));
        assert_eq!(literal("and/or"), Literal::Text);
        assert_eq!(literal("e.g."), Literal::Text);
        assert_eq!(literal("/"), Literal::Text);
    }

    #[test]
    fn an_address_is_a_url_at_its_host() {
        assert_eq!(literal("https://www.reddit.com/r/rust?x=1,"), Literal::Kind(vec!["url", "reddit"]));
        assert_eq!(literal("http://127.0.0.1:8080/a.png"), Literal::Kind(vec!["url", "image", "picture"]));
        assert_eq!(literal("<me@example.org>"), Literal::Kind(vec!["email"]));
    }

    #[test]
    fn keys_and_digests_say_nothing() {
        assert_eq!(literal("3f2a9c1d-77b0-4e51-9a3e-0c6d1b2f8a44"), Literal::Blob);
        assert_eq!(literal("aGVsbG8gd29ybGQhIQ=="), Literal::Blob);
        assert_eq!(literal("#512"), Literal::Kind(vec!["issue", "number"]));
        assert_eq!(literal("3fa9c1e"), Literal::Kind(vec!["commit"]));
        assert_eq!(literal("1234567"), Literal::Text);
        assert_eq!(literal("internationalization"), Literal::Text);
        assert_eq!(literal("gmail_search_messages"), Literal::Text);
    }
}
