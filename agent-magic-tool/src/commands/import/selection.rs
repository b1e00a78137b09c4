//! Which operations are imported, and how: the options that a refresh uses again.

use std::collections::BTreeMap;

use agent_side::error::Error;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use import::graphql::ANSWER_DEPTH;
use import::mcp::{PREFIX, TRUST_ANNOTATIONS};
use import::sql::TABLES;
use import::{ImportOptions, Imported, ImportedSubtool};

#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Selection {
    /// Import only what matches: a glob over names or over methods and paths, like `GET /repos/*`
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Leave out what matches, likewise
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Import only operations with this tag, or of this resource
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Import only operations with this method
    #[arg(long, value_name = "METHOD")]
    method: Vec<String>,
    /// Keep deprecated operations, and parameters that models never set
    #[arg(long)]
    full: bool,
    /// How many levels of objects an input may have [default: 4]
    #[arg(long, value_name = "LEVELS")]
    limit_depth: Option<usize>,
    /// How many levels of objects a GraphQL answer has [default: 2]
    #[arg(long, value_name = "LEVELS", value_parser = clap::value_parser!(u8).range(1..=5))]
    answer_depth: Option<u8>,
    /// The URL of the server, if it is not the one in the description
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Write a subtool for the rows of each table whose name matches
    #[arg(long, value_name = "GLOB", help_heading = "Databases")]
    table: Vec<String>,
    /// Call each tool `SERVER__TOOL`; done by itself if a tool's name is taken
    #[arg(long, help_heading = "MCP servers")]
    prefix: bool,
    /// Believe the server which of its tools only read, or may be repeated: such a tool may run without asking you
    #[arg(long, help_heading = "MCP servers")]
    trust_annotations: bool,
}

impl Selection {
    pub(super) fn options(&self, pack: Option<&str>) -> ImportOptions {
        ImportOptions {
            pack: pack.map(str::to_owned),
            server: self.server.clone(),
            full: self.full,
            depth: self.limit_depth,
            others: self.others(),
            ..ImportOptions::default()
        }
    }

    fn others(&self) -> BTreeMap<String, String> {
        let mut others: BTreeMap<_, _> = self.flags().map(|flag| (flag.to_owned(), String::new())).collect();
        if !self.table.is_empty() {
            others.insert(TABLES.to_owned(), self.table.join(","));
        }
        others.extend(self.answer_depth.map(|depth| (ANSWER_DEPTH.to_owned(), depth.to_string())));
        others
    }

    /// The names of the flags that are set and that only one kind knows.
    fn flags(&self) -> impl Iterator<Item = &'static str> {
        let flags = [(PREFIX, self.prefix), (TRUST_ANNOTATIONS, self.trust_annotations)];
        flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag)
    }

    /// Has the names of MCP tools begin with that of their server; false if they do already.
    pub(super) fn add_prefix(&mut self) -> bool {
        !std::mem::replace(&mut self.prefix, true)
    }

    /// The words of the command line for these options.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (option, values) in [
            ("include", &self.include),
            ("exclude", &self.exclude),
            ("tag", &self.tag),
            ("method", &self.method),
            (TABLES, &self.table),
        ] {
            words.extend(values.iter().map(|value| format!("--{option}={value}")));
        }
        if self.full {
            words.push("--full".to_owned());
        }
        words.extend(self.limit_depth.map(|depth| format!("--limit-depth={depth}")));
        words.extend(self.answer_depth.map(|depth| format!("--{ANSWER_DEPTH}={depth}")));
        words.extend(self.server.iter().map(|server| format!("--server={server}")));
        words.extend(self.flags().map(|flag| format!("--{flag}")));
        words
    }

    /// The options that match nothing in `imported`, which has not been selected from yet: a typing mistake would leave
    /// out nothing, or everything.
    pub(super) fn idle(&self, imported: &Imported) -> Result<Vec<String>, Error> {
        let mut idle = Vec::new();
        let mut look = |option: &str, pattern: &str, matches: &dyn Fn(&ImportedSubtool) -> bool| {
            if !imported.subtools.iter().any(matches) {
                idle.push(format!("--{option} '{pattern}'"));
            }
        };
        for (option, patterns) in [("include", &self.include), ("exclude", &self.exclude)] {
            for pattern in patterns {
                let set = globs(std::slice::from_ref(pattern))?;
                look(option, pattern, &|subtool| matches(&set, subtool));
            }
        }
        for tag in &self.tag {
            look("tag", tag, &|subtool| has_tag(std::slice::from_ref(tag), subtool));
        }
        for method in &self.method {
            look("method", method, &|subtool| has_method(std::slice::from_ref(method), subtool));
        }
        Ok(idle)
    }

    /// Removes what is not selected, and returns how it is called.
    pub(super) fn apply(&self, imported: &mut Imported) -> Result<Vec<String>, Error> {
        let (include, exclude) = (globs(&self.include)?, globs(&self.exclude)?);
        let mut unselected = Vec::new();
        imported.subtools.retain(|subtool| {
            let is_selected = (self.include.is_empty() || matches(&include, subtool))
                && !matches(&exclude, subtool)
                && (self.tag.is_empty() || has_tag(&self.tag, subtool))
                && (self.method.is_empty() || has_method(&self.method, subtool));
            if !is_selected {
                unselected.push(subtool.what.clone());
            }
            is_selected
        });
        Ok(unselected)
    }
}

/// Whether the name of an operation, or its method and path, is like one of the globs.
fn matches(globs: &GlobSet, subtool: &ImportedSubtool) -> bool {
    let path = subtool.what.split_once(' ').map_or(subtool.what.as_str(), |(_, path)| path);
    globs.is_match(&subtool.name) || globs.is_match(&subtool.what) || globs.is_match(path)
}

fn has_tag(wanted: &[String], subtool: &ImportedSubtool) -> bool {
    let tags = subtool.definition.get("tags").and_then(|tags| tags.as_array()).into_iter().flatten();
    let mut known = tags.filter_map(|tag| tag.as_str()).chain([subtool.group.as_str()]);
    known.any(|known| wanted.iter().any(|tag| words(tag) == words(known)))
}

fn has_method(wanted: &[String], subtool: &ImportedSubtool) -> bool {
    let method = subtool.definition["run"]["http"]["method"].as_str().unwrap_or("GET");
    wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(method))
}

fn words(tag: &str) -> Vec<String> {
    import::names::words(tag)
}

fn globs(patterns: &[String]) -> Result<GlobSet, Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern).literal_separator(false).build();
        set.add(glob.map_err(|error| Error::usage(format!("`{pattern}` is not a valid glob: {}", error.kind())))?);
    }
    set.build().map_err(|error| Error::usage(format!("the globs cannot be used together: {error}")))
}
