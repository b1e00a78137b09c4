//! PostgreSQL's arrays in their text form.

/// A part of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ArrayItem {
    Null,
    Text(String),
    Array(Vec<Self>),
}

/// Reads an array like `{1,NULL,"a b"}`. Bounds before it (`[0:1]={…}`) are left out. `None` if it is not whole.
pub(super) fn parse(text: &str, delimiter: char) -> Option<Vec<ArrayItem>> {
    let text = if text.starts_with('[') { text.split_once('=')?.1 } else { text };
    let mut rest = text.strip_prefix('{')?;
    let items = parse_items(&mut rest, delimiter)?;
    rest.is_empty().then_some(items)
}

/// Reads up to and with the closing brace.
fn parse_items(rest: &mut &str, delimiter: char) -> Option<Vec<ArrayItem>> {
    let mut items = Vec::new();
    if let Some(after) = rest.strip_prefix('}') {
        *rest = after;
        return Some(items);
    }
    loop {
        items.push(if let Some(inner) = rest.strip_prefix('{') {
            *rest = inner;
            ArrayItem::Array(parse_items(rest, delimiter)?)
        } else if let Some(quoted) = rest.strip_prefix('"') {
            *rest = quoted;
            ArrayItem::Text(parse_quoted(rest)?)
        } else {
            let end = rest.find([delimiter, '}'])?;
            let (item, after) = rest.split_at(end);
            *rest = after;
            if item == "NULL" { ArrayItem::Null } else { ArrayItem::Text(item.to_owned()) }
        });
        let mut following = rest.chars();
        let separator = following.next()?;
        *rest = following.as_str();
        match separator {
            '}' => return Some(items),
            separator if separator == delimiter => {}
            _ => return None,
        }
    }
}

fn parse_quoted(rest: &mut &str) -> Option<String> {
    let mut item = String::new();
    let mut characters = rest.chars();
    loop {
        match characters.next()? {
            '"' => break,
            '\\' => item.push(characters.next()?),
            character => item.push(character),
        }
    }
    *rest = characters.as_str();
    Some(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_with_quotes_dimensions_and_bounds() {
        let text = |text: &str| ArrayItem::Text(text.to_owned());
        assert_eq!(parse("{}", ','), Some(vec![]));
        assert_eq!(
            parse(r#"{1,NULL,"NULL","a\"b\\c,}","日本"}"#, ','),
            Some(vec![text("1"), ArrayItem::Null, text("NULL"), text("a\"b\\c,}"), text("日本")])
        );
        let row = |a, b| ArrayItem::Array(vec![text(a), text(b)]);
        assert_eq!(parse("[0:1][1:2]={{1,2},{3,4}}", ','), Some(vec![row("1", "2"), row("3", "4")]));
        assert_eq!(parse("{(1,1),(0,0);(2,2),(0,0)}", ';'), Some(vec![text("(1,1),(0,0)"), text("(2,2),(0,0)")]));
        assert_eq!(parse("{1,2", ','), None);
        assert_eq!(parse("{1}}", ','), None);
    }
}
