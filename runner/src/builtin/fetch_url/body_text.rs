//! Decodes the bytes of a page as text or JSON; anything else is refused.

use encoding_rs::{Encoding, UTF_8};
use ground::task::failure::Failure;
use html2text::config;
use html2text::render::TextDecorator;
use protocol::code::Code;
use protocol::json::parse_answer;
use serde_json::Value;
use url::Url;

/// The width for the renderer: wider than any paragraph, so that lines break only where the page breaks them.
const WIDTH: usize = 100_000;

/// How much of a page is searched for its charset declaration; browsers use the same limit.
const SNIFFED_BYTES: usize = 1024;

/// The response of a server.
#[derive(Debug)]
pub(super) struct WebPage {
    /// The URL after all redirects.
    pub(super) url: Url,
    pub(super) status: u16,
    /// The value of the header, or empty.
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
}

#[derive(Debug, PartialEq)]
pub(super) enum PageContent {
    Text { title: Option<String>, text: String },
    Json { value: Value, text: String },
}

enum ContentKind {
    Html,
    Json,
    Text,
}

impl WebPage {
    pub(super) fn content(&self) -> Result<PageContent, Failure> {
        let kind = self.kind()?;
        let text = self.decoded();
        Ok(match kind {
            ContentKind::Html => PageContent::Text { title: title(&text), text: self.readable(&text)? },
            ContentKind::Json => match parse_answer(&text) {
                Ok(value) => PageContent::Json { value, text },
                Err(_) => PageContent::Text { title: None, text },
            },
            ContentKind::Text => PageContent::Text { title: None, text },
        })
    }

    fn kind(&self) -> Result<ContentKind, Failure> {
        let essence = self.content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "text/html" | "application/xhtml+xml" => Ok(ContentKind::Html),
            "application/json" | "text/json" => Ok(ContentKind::Json),
            "application/xml" | "application/javascript" | "application/yaml" | "application/toml" => {
                Ok(ContentKind::Text)
            }
            essence if essence.ends_with("+json") => Ok(ContentKind::Json),
            essence if essence.ends_with("+xml") || essence.starts_with("text/") => Ok(ContentKind::Text),
            // No content type, or an unspecific one: the bytes decide.
            "" | "application/octet-stream" if !self.body.contains(&0) && str::from_utf8(&self.body).is_ok() => {
                let start = self.body.trim_ascii_start();
                Ok(if start.first() == Some(&b'<') { ContentKind::Html } else { ContentKind::Text })
            }
            _ => Err(Failure::new(Code::BadResponse, format!("`{}` is not a text", self.url))
                .detail("content_type", self.content_type.as_str())
                .detail("bytes", self.body.len())
                .hint("only web pages, text and JSON can be fetched")),
        }
    }

    /// Decodes the body by its byte order mark, the header, the page's `<meta charset>`, or else as UTF-8.
    fn decoded(&self) -> String {
        let beginning = String::from_utf8_lossy(&self.body[..self.body.len().min(SNIFFED_BYTES)]);
        let encoding = charset(&self.content_type).or_else(|| charset(&beginning)).unwrap_or(UTF_8);
        encoding.decode(&self.body).0.into_owned()
    }

    fn readable(&self, html: &str) -> Result<String, Failure> {
        let decorator = LinkDecorator { base: self.url.clone(), open: Vec::new() };
        let text = config::with_decorator(decorator)
            .no_table_borders()
            .unicode_strikeout(false)
            .no_link_wrapping()
            .string_from_read(html.as_bytes(), WIDTH)
            .map_err(|error| Failure::new(Code::BadResponse, format!("failed to read `{}`: {error}", self.url)))?;
        let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.dedup_by(|line, before| line.is_empty() && before.is_empty());
        Ok(lines.join("\n").trim_matches('\n').to_owned())
    }
}

/// Returns the encoding that the first `charset=` in `text` names.
fn charset(text: &str) -> Option<&'static Encoding> {
    let at = text.to_ascii_lowercase().find("charset=")? + "charset=".len();
    let label = text[at..].trim_start_matches(['"', '\'', ' ']);
    let end = label.find(|c: char| !c.is_ascii_alphanumeric() && !"-_:.".contains(c)).unwrap_or(label.len());
    Encoding::for_label(&label.as_bytes()[..end])
}

fn title(html: &str) -> Option<String> {
    let lower = html.to_ascii_lowercase();
    let open = lower.find("<title")?;
    let start = open + lower[open..].find('>')? + 1;
    let end = start + lower[start..].find("</title")?;
    // Rendering decodes the entities.
    let title = config::plain_no_decorate().string_from_read(&html.as_bytes()[start..end], WIDTH).ok()?;
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    (!title.is_empty()).then_some(title)
}

/// Renders links as `[text](url)` with an absolute URL, and everything else as plain text.
#[derive(Debug, Clone)]
struct LinkDecorator {
    base: Url,
    /// The URLs of the open links; `None` for a link that is rendered as its text.
    open: Vec<Option<String>>,
}

impl TextDecorator for LinkDecorator {
    type Annotation = ();

    fn decorate_link_start(&mut self, url: &str) -> (String, ()) {
        let target = self.base.join(url).ok().filter(|target| {
            matches!(target.scheme(), "http" | "https" | "mailto") && !url.starts_with('#') && !url.is_empty()
        });
        let begin = if target.is_some() { "[" } else { "" };
        self.open.push(target.map(String::from));
        (begin.to_owned(), ())
    }

    fn decorate_link_end(&mut self) -> String {
        match self.open.pop().flatten() {
            Some(target) => format!("]({target})"),
            None => String::new(),
        }
    }

    fn decorate_em_start(&self) -> (String, ()) {
        (String::new(), ())
    }

    fn decorate_em_end(&self) -> String {
        String::new()
    }

    fn decorate_strong_start(&self) -> (String, ()) {
        (String::new(), ())
    }

    fn decorate_strong_end(&self) -> String {
        String::new()
    }

    fn decorate_strikeout_start(&self) -> (String, ()) {
        ("~~".to_owned(), ())
    }

    fn decorate_strikeout_end(&self) -> String {
        "~~".to_owned()
    }

    fn decorate_code_start(&self) -> (String, ()) {
        ("`".to_owned(), ())
    }

    fn decorate_code_end(&self) -> String {
        "`".to_owned()
    }

    fn decorate_preformat_first(&self) {}

    fn decorate_preformat_cont(&self) {}

    fn decorate_image(&mut self, _: &str, title: &str) -> (String, ()) {
        (format!("[image: {title}]"), ())
    }

    fn header_prefix(&self, level: usize) -> String {
        "#".repeat(level) + " "
    }

    fn quote_prefix(&self) -> String {
        "> ".to_owned()
    }

    fn unordered_item_prefix(&self) -> String {
        "* ".to_owned()
    }

    fn ordered_item_prefix(&self, number: i64) -> String {
        format!("{number}. ")
    }

    fn make_subblock_decorator(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(content_type: &str, body: &[u8]) -> WebPage {
        let url = "https://example.org/docs/page".parse().expect("a URL");
        WebPage { url, status: 200, content_type: content_type.to_owned(), body: body.to_vec() }
    }

    #[test]
    fn a_page_becomes_its_text_with_absolute_links_and_no_scripts() {
        let html = br##"<!doctype html><html><head><title>Caf&eacute;
            prices</title><style>p { color: red }</style><script>alert("x")</script></head>
            <body><h1>Menu</h1><p>Tea &amp; <a href="../more?x=1">more <b>here</b></a>, <a href="#top">up</a>,
            <a href="javascript:alert(1)">no</a>.</p><noscript>on</noscript>
            <table><tr><th>Tea</th><th>Price</th></tr><tr><td>green</td><td>3</td></tr></table>
            <ul><li>one</li><li>two</li></ul><pre>a  b
  c</pre></body></html>"##;
        let content = page("text/html; charset=utf-8", html).content().expect("it is HTML");
        let PageContent::Text { title, text } = content else { panic!("{content:?}") };
        assert_eq!(title.as_deref(), Some("Café prices"));
        assert!(text.starts_with("# Menu\n\nTea & [more here](https://example.org/more?x=1), up, no."), "{text}");
        assert!(text.contains("* one\n* two"), "{text}");
        assert!(text.contains("a  b\n  c"), "{text}");
        assert!(!text.contains("alert") && !text.contains("color"), "{text}");
    }

    #[test]
    fn the_charset_comes_from_the_header_or_the_page() {
        let gbk = [0xc4, 0xea, 0xb6, 0xc8];
        let mut html = b"<meta charset='gbk'><p>".to_vec();
        html.extend(gbk);
        for (content_type, body) in [("text/plain; charset=GBK", gbk.as_slice()), ("text/html", &html)] {
            let content = page(content_type, body).content().expect("it is text");
            assert!(matches!(&content, PageContent::Text { text, .. } if text == "年度"), "{content:?}");
        }
    }

    #[test]
    fn content_that_is_not_text_is_refused() {
        for (content_type, body) in [("image/png", b"\x89PNG".as_slice()), ("", b"\x00\x01")] {
            let failure = page(content_type, body).content().expect_err("it is not text");
            assert_eq!(failure.error.code, Code::BadResponse);
        }
        assert!(page("", b"plain words").content().is_ok());
    }
}
