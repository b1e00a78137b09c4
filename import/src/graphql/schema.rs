//! A GraphQL schema as the import needs it, read from the answer to an introspection query.
//!
//! Tolerant: what a server leaves out is empty. Decides nothing about what becomes a subtool.

use std::collections::BTreeMap;

use serde_json::Value;

/// How many lists and non-nulls may stand around a type; real schemas have four at most.
const MAX_WRAPPERS: usize = 16;

/// The question whose answer [`GraphqlSchema::of_introspection`] reads.
pub const INTROSPECTION_QUERY: &str = "query { __schema { queryType { name } mutationType { name } types { \
    kind name description \
    fields(includeDeprecated: true) { name description isDeprecated deprecationReason type { ...Reference } args { ...Argument } } \
    inputFields { ...Argument } \
    enumValues(includeDeprecated: true) { name description isDeprecated } \
    possibleTypes { name } } } } \
    fragment Argument on __InputValue { name description defaultValue type { ...Reference } } \
    fragment Reference on __Type { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name \
    ofType { kind name ofType { kind name ofType { kind name } } } } } } } }";

#[derive(Debug, Default)]
pub(super) struct GraphqlSchema {
    pub(super) query: Option<String>,
    pub(super) mutation: Option<String>,
    pub(super) types: BTreeMap<String, GraphqlType>,
}

#[derive(Debug, Default)]
pub(super) struct GraphqlType {
    pub(super) kind: TypeKind,
    pub(super) description: String,
    /// Of an object or an interface.
    pub(super) fields: Vec<GraphqlField>,
    /// Of an input object.
    pub(super) inputs: Vec<GraphqlArgument>,
    /// Of an enum, with their descriptions.
    pub(super) values: Vec<(String, String)>,
    /// The objects that an interface or a union can be.
    pub(super) possible: Vec<String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeKind {
    #[default]
    Scalar,
    Enum,
    Object,
    Interface,
    Union,
    InputObject,
}

#[derive(Debug, Clone)]
pub(super) struct GraphqlField {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) is_deprecated: bool,
    pub(super) arguments: Vec<GraphqlArgument>,
    pub(super) kind: TypeReference,
}

#[derive(Debug, Clone)]
pub(super) struct GraphqlArgument {
    pub(super) name: String,
    pub(super) description: String,
    /// As GraphQL writes it.
    pub(super) default: Option<String>,
    pub(super) kind: TypeReference,
}

/// A type as a field or an argument names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TypeReference {
    Named(String),
    List(Box<Self>),
    NonNull(Box<Self>),
}

impl TypeReference {
    /// The type without lists and non-nulls.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::List(inner) | Self::NonNull(inner) => inner.name(),
        }
    }

    pub(super) fn is_list(&self) -> bool {
        match self {
            Self::Named(_) => false,
            Self::List(_) => true,
            Self::NonNull(inner) => inner.is_list(),
        }
    }

    /// As GraphQL writes it: `[ID!]!`.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Named(name) => name.clone(),
            Self::List(inner) => format!("[{}]", inner.text()),
            Self::NonNull(inner) => format!("{}!", inner.text()),
        }
    }

    fn of(reference: &Value, depth: usize) -> Option<Self> {
        let inner = || Some(Box::new(Self::of(&reference["ofType"], depth + 1)?));
        match reference["kind"].as_str()? {
            _ if depth > MAX_WRAPPERS => None,
            "LIST" => Some(Self::List(inner()?)),
            "NON_NULL" => Some(Self::NonNull(inner()?)),
            _ => Some(Self::Named(name(reference)?)),
        }
    }
}

impl GraphqlArgument {
    /// Whether it must be given.
    pub(super) fn is_required(&self) -> bool {
        matches!(self.kind, TypeReference::NonNull(_)) && self.default.is_none()
    }
}

impl GraphqlSchema {
    /// Reads an introspection result: `{"data": {"__schema": …}}`, or what stands in it.
    pub(super) fn of_introspection(document: &Value) -> Option<Self> {
        let places = ["/data/__schema", "/__schema"];
        let schema = places.iter().find_map(|place| document.pointer(place))?;
        let root = |key: &str| schema[key]["name"].as_str().map(str::to_owned);
        let types = schema["types"].as_array()?.iter().filter_map(|it| Some((name(it)?, GraphqlType::of(it))));
        Some(Self { query: root("queryType"), mutation: root("mutationType"), types: types.collect() })
    }

    /// The fields of a root type.
    pub(super) fn root(&self, name: Option<&String>) -> &[GraphqlField] {
        name.and_then(|name| self.types.get(name)).map_or(&[], |root| &root.fields)
    }

    /// Whether it has no fields of its own.
    pub(super) fn is_leaf(&self, name: &str) -> bool {
        match self.types.get(name) {
            Some(known) => matches!(known.kind, TypeKind::Scalar | TypeKind::Enum),
            None => matches!(name, "Int" | "Float" | "String" | "Boolean" | "ID"),
        }
    }
}

impl GraphqlType {
    fn of(value: &Value) -> Self {
        let items = |key: &str| value[key].as_array().into_iter().flatten();
        let kind = match value["kind"].as_str() {
            Some("OBJECT") => TypeKind::Object,
            Some("INTERFACE") => TypeKind::Interface,
            Some("UNION") => TypeKind::Union,
            Some("ENUM") => TypeKind::Enum,
            Some("INPUT_OBJECT") => TypeKind::InputObject,
            _ => TypeKind::Scalar,
        };
        let is_current = |it: &&Value| it["isDeprecated"] != Value::Bool(true);
        Self {
            kind,
            description: text(value, "description").unwrap_or_default(),
            fields: items("fields").filter_map(GraphqlField::of).collect(),
            inputs: items("inputFields").filter_map(GraphqlArgument::of).collect(),
            values: items("enumValues")
                .filter(is_current)
                .filter_map(|it| Some((name(it)?, text(it, "description").unwrap_or_default())))
                .collect(),
            possible: items("possibleTypes").filter_map(name).collect(),
        }
    }
}

impl GraphqlField {
    fn of(value: &Value) -> Option<Self> {
        Some(Self {
            name: name(value)?,
            description: text(value, "description").unwrap_or_default(),
            is_deprecated: value["isDeprecated"] == Value::Bool(true),
            arguments: value["args"].as_array().into_iter().flatten().filter_map(GraphqlArgument::of).collect(),
            kind: TypeReference::of(&value["type"], 0)?,
        })
    }
}

impl GraphqlArgument {
    fn of(value: &Value) -> Option<Self> {
        Some(Self {
            name: name(value)?,
            description: text(value, "description").unwrap_or_default(),
            default: text(value, "defaultValue"),
            kind: TypeReference::of(&value["type"], 0)?,
        })
    }
}

/// The name of what `value` describes, if GraphQL allows it as a name: names are written into queries, where anything else
/// would be a part of the language, or a template.
fn name(value: &Value) -> Option<String> {
    let name = text(value, "name")?;
    let is_letter = |it: char| it.is_ascii_alphabetic() || it == '_';
    let is_name = name.starts_with(is_letter) && name.chars().all(|it| is_letter(it) || it.is_ascii_digit());
    is_name.then_some(name)
}

fn text(value: &Value, key: &str) -> Option<String> {
    value[key].as_str().map(str::to_owned)
}
