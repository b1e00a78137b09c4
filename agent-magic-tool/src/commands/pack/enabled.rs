//! Writes into the configuration whether a pack is enabled, and leaves everything else byte for byte as it is.

use agent_side::context::Context;
use agent_side::error::Error;
use ground::config::{Config, ConfigText};
use toml_edit::{Document, DocumentMut, Item, Table};

use crate::commands::setup::change::{Change, read};

/// Enables or disables a pack.
pub(super) fn write(name: &str, enabled: bool, config: &Config, context: &Context) -> Result<(), Error> {
    let path = context.paths.config_file();
    let failed =
        |what: &str, error: &std::io::Error| Error::io(&format!("failed to {what} `{}`", path.display()), error);
    let before = read(&path).map_err(|error| failed("read", &error))?;
    let is_default = config.catalog.packs.iter().any(|listed| listed == name);
    let by_hand = |reason: &str| {
        Error::usage(format!("`{}` cannot be edited: {reason}", path.display()))
            .hint(format!("write by hand, under [packs.{name}]: enabled = {enabled}"))
    };
    let after = with(before.as_deref().unwrap_or_default(), name, enabled, is_default).map_err(|it| by_hand(&it))?;
    if before.as_deref().unwrap_or_default() == after {
        return Ok(());
    }
    // Whatever stands there, the file stays one that the executor accepts, and says what was wanted.
    let accepted = ConfigText::new(&path, after.clone()).parse()?.config;
    if accepted.enabled_packs().contains(&name) != enabled {
        return Err(by_hand("the edit would not have the effect"));
    }
    // An empty file stays: a configuration that is gone is no permission to go on with the defaults.
    Change { path: path.clone(), before, after: Some(after) }
        .apply_private()
        .map_err(|error| failed("write", &error))?;
    Ok(())
}

/// Returns the configuration `text` with what it says about the pack. What was appended for the opposite is removed again if
/// that is the default.
fn with(text: &str, name: &str, enabled: bool, is_default: bool) -> Result<String, String> {
    let section = |enabled: bool| format!("[packs.{name}]\nenabled = {enabled}\n");
    if enabled == is_default {
        let appended = section(!enabled);
        if text == appended {
            return Ok(String::new());
        }
        if let Some(before) = text.strip_suffix(&format!("\n{appended}")) {
            return Ok(before.to_owned());
        }
    }
    let document: Document<&str> = Document::parse(text).map_err(|error| format!("fix its TOML: {error}"))?;
    let pack = document.get("packs").and_then(|packs| packs.get(name));
    let known = pack.and_then(|pack| pack.get("enabled"));
    match (pack, known.map(|known| (known.as_bool(), known.span()))) {
        (_, Some((Some(known), _))) if known == enabled => Ok(text.to_owned()),
        (_, Some((_, Some(span)))) => Ok(format!("{}{enabled}{}", &text[..span.start], &text[span.end..])),
        (None, _) if enabled == is_default => Ok(text.to_owned()),
        (None, _) => {
            let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            let gap = if text.is_empty() { "" } else { "\n" };
            let appended = format!("{text}{end}{gap}{}", section(enabled));
            if Document::parse(appended.as_str()).is_ok() { Ok(appended) } else { inserted(text, name, enabled) }
        }
        (Some(_), _) => inserted(text, name, enabled),
    }
}

/// Adds the key to what stands there about packs. Of the other lines, none may change: `toml_edit` writes line ends of its
/// own.
fn inserted(text: &str, name: &str, enabled: bool) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|error| format!("fix its TOML: {error}"))?;
    let packs = document.entry("packs").or_insert(Item::Table(Table::new()));
    let packs = packs.as_table_like_mut().ok_or("`packs` is not a table")?;
    let pack = packs.entry(name).or_insert(Item::Table(Table::new()));
    let pack = pack.as_table_like_mut().ok_or_else(|| format!("`packs.{name}` is not a table"))?;
    pack.insert("enabled", toml_edit::value(enabled));
    let after = document.to_string();
    let mut kept = after.split_inclusive('\n').peekable();
    let mut is_kept = |line: &str| {
        let mut rest = kept.clone();
        let found = rest.any(|after| after == line);
        if found {
            kept = rest;
        }
        found
    };
    let changed: Vec<_> = text.split_inclusive('\n').filter(|line| !is_kept(line)).collect();
    // Settings of the pack may stand in one line.
    match changed[..] {
        [] => Ok(after),
        [line] if line.contains('{') && (line.contains(name) || line.starts_with("packs")) => Ok(after),
        _ => Err("other lines would change".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pack_is_written_and_the_opposite_restores_every_byte() {
        let files = [
            "",
            "# nothing\n",
            "[page]\nidle = \"1h\"   # long\n\n# the end\n",
            "[page]\r\nidle = \"1h\"\r\n",
            "catalog.packs = [ \"git\" ] # mine\n[packs.git]\nswitches = {  }\n",
            "[packs]\n# mine\nweb = { enabled = false }\n",
        ];
        for text in files {
            let on = with(text, "zoo", true, false).expect("TOML");
            let gap = if text.is_empty() { "" } else { "\n" };
            assert_eq!(on, format!("{text}{gap}[packs.zoo]\nenabled = true\n"));
            assert_eq!(with(&on, "zoo", true, false).as_ref(), Ok(&on), "twice is once");
            assert_eq!(with(&on, "zoo", false, false).as_deref(), Ok(text));
            assert_eq!(with(text, "zoo", false, false).as_deref(), Ok(text), "it is off by default");
            let off = with(text, "zoo", false, true).expect("TOML");
            assert!(off.ends_with("enabled = false\n"), "{off}");
            assert_eq!(with(&off, "zoo", true, true).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_stands_there_is_changed_in_its_place() {
        for (before, after) in [
            (
                "[packs.zoo]\r\nenabled  =  false # why\r\nx = 1\r\n",
                "[packs.zoo]\r\nenabled  =  true # why\r\nx = 1\r\n",
            ),
            ("packs.zoo.enabled = false\n[page]\n", "packs.zoo.enabled = true\n[page]\n"),
            ("[packs]\nzoo = {enabled=false}\n", "[packs]\nzoo = {enabled=true}\n"),
            (
                "[packs.zoo]\n# mine\nswitches = { a = true }\n\n[page]\n# end\n",
                "[packs.zoo]\n# mine\nswitches = { a = true }\nenabled = true\n\n[page]\n# end\n",
            ),
            ("packs = { web = { enabled = true } }\n", "packs = { web = { enabled = true } , zoo.enabled = true }\n"),
        ] {
            assert_eq!(with(before, "zoo", true, false).as_deref(), Ok(after));
        }
        assert!(with("]", "zoo", true, false).is_err() && with("packs = 1\n", "zoo", true, false).is_err());
        // toml_edit would write other line ends.
        assert!(with("[packs.zoo]\r\nswitches = { a = true }\r\n", "zoo", true, false).is_err());
    }
}
