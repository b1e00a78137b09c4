//! What a GraphQL query asks for: the leaves of the answer first, then those of what it contains, to a depth.
//!
//! Fields that need arguments and deprecated ones are left out. Pages (connections) cost no depth at the top; below it
//! they are asked for only from a depth of three, ten items each.

use std::collections::BTreeMap;

use super::schema::{GraphqlField, GraphqlSchema, GraphqlType, TypeKind};

/// The most fields of one query: beyond that an answer is more than a model reads.
const MAX_FIELDS: usize = 100;
/// The most leaves of the type that is asked for.
const MAX_OWN_LEAVES: usize = 30;
/// The most leaves of a type within it.
const MAX_INNER_LEAVES: usize = 8;
/// The most types of an interface or a union that are asked for.
const MAX_ALTERNATIVES: usize = 8;
/// The most of them that are asked for more than their leaves.
const MAX_DEEP_ALTERNATIVES: usize = 3;
/// How many items of a page within an answer are asked for.
const INNER_ITEMS: u32 = 10;

/// The leaves that say most about a thing, if not all of them fit.
const TELLING: [&str; 22] = [
    "id",
    "uid",
    "key",
    "name",
    "title",
    "login",
    "username",
    "email",
    "slug",
    "sku",
    "code",
    "number",
    "state",
    "status",
    "value",
    "amount",
    "currency",
    "message",
    "field",
    "url",
    "createdAt",
    "updatedAt",
];

pub(super) struct Selector<'a> {
    schema: &'a GraphqlSchema,
    left: usize,
}

impl<'a> Selector<'a> {
    pub(super) fn new(schema: &'a GraphqlSchema) -> Self {
        Self { schema, left: MAX_FIELDS }
    }

    /// Returns the selection set for `field`, without its outer braces; `None` if it is a leaf.
    pub(super) fn of_field(&mut self, field: &GraphqlField, depth: usize) -> Option<String> {
        let name = field.kind.name();
        if self.schema.is_leaf(name) {
            return None;
        }
        Some(self.of_type(name, depth, true).unwrap_or_else(|| "__typename".to_owned()))
    }

    fn of_type(&mut self, name: &str, depth: usize, is_own: bool) -> Option<String> {
        let known = self.schema.types.get(name)?;
        let parts = match known.kind {
            TypeKind::Object => self.of_object(known, depth, is_own, &mut Shapes::default(), "")?,
            TypeKind::Interface | TypeKind::Union => self.of_abstract(known, depth, is_own)?,
            TypeKind::Scalar | TypeKind::Enum | TypeKind::InputObject => return None,
        };
        Some(parts.join(" "))
    }

    /// Returns the parts of the selection; `None` if there is nothing to ask for.
    fn of_object(
        &mut self,
        known: &GraphqlType,
        depth: usize,
        is_own: bool,
        shapes: &mut Shapes,
        place: &str,
    ) -> Option<Vec<String>> {
        let mut usable: Vec<_> = known.fields.iter().filter(|field| is_usable(field)).collect();
        // Where a page ends must be known, however much its items take.
        usable.sort_by_key(|field| !is_position(field));
        let mut leaves: Vec<_> =
            usable.iter().copied().filter(|field| self.schema.is_leaf(field.kind.name())).collect();
        let is_alternative = !place.is_empty();
        let most = if is_own && !is_alternative { MAX_OWN_LEAVES } else { MAX_INNER_LEAVES };
        if leaves.len() > most {
            leaves = most_telling(leaves);
            leaves.truncate(most);
        }
        let mut parts: Vec<String> = Vec::new();
        for leaf in leaves.into_iter().filter(|leaf| shapes.admit(&leaf.name, &leaf.kind.text(), place)) {
            if self.left > 0 {
                self.left -= 1;
                parts.push(leaf.name.clone());
            }
        }
        let is_page = is_page(known);
        let has_nodes = usable.iter().any(|field| matches!(field.name.as_str(), "nodes" | "items"));
        for field in usable.into_iter().filter(|field| !self.schema.is_leaf(field.kind.name())) {
            // A page's items, and the thing of an edge, are what was asked for.
            let is_content = is_page && field.kind.is_list() || field.name == "node";
            if is_page && has_nodes && field.name == "edges" {
                continue;
            }
            let inner_depth = match (is_content, is_position(field)) {
                (true, _) => depth,
                (false, true) => 1,
                (false, false) => depth - 1,
            };
            let arguments = match self.schema.types.get(field.kind.name()) {
                Some(inner) if self::is_page(inner) && inner_depth < 2 => continue,
                Some(inner) if self::is_page(inner) => first_argument(field),
                _ => String::new(),
            };
            if inner_depth == 0
                || self.left == 0
                || shapes.are_many && is_alternative
                || !shapes.admit(&field.name, "{}", place)
            {
                continue;
            }
            let is_own = is_own && is_content;
            if let Some(inner) = self.of_type(field.kind.name(), inner_depth, is_own) {
                parts.push(format!("{}{arguments} {{ {inner} }}", field.name));
            }
        }
        (!parts.is_empty()).then_some(parts)
    }

    fn of_abstract(&mut self, known: &GraphqlType, depth: usize, is_own: bool) -> Option<Vec<String>> {
        let mut shapes = Shapes { are_many: known.possible.len() > MAX_DEEP_ALTERNATIVES, ..Shapes::default() };
        let mut parts = vec!["__typename".to_owned()];
        parts.extend(self.of_object(known, depth, is_own, &mut shapes, "").unwrap_or_default());
        for name in known.possible.iter().take(MAX_ALTERNATIVES) {
            let Some(possible) = self.schema.types.get(name) else { continue };
            let is_object = possible.kind == TypeKind::Object;
            if let Some(own) = is_object.then(|| self.of_object(possible, depth, is_own, &mut shapes, name)).flatten() {
                parts.push(format!("... on {name} {{ {} }}", own.join(" ")));
            }
        }
        (!known.possible.is_empty() || parts.len() > 1).then_some(parts)
    }
}

/// The fields that the alternatives of one answer have already asked for: a name may not have two shapes.
#[derive(Default)]
struct Shapes {
    known: BTreeMap<String, (String, String)>,
    /// Whether there are so many alternatives that each is asked only for its leaves.
    are_many: bool,
}

impl Shapes {
    /// Whether a field of this shape may be asked for at `place`, an alternative or all of them.
    fn admit(&mut self, name: &str, shape: &str, place: &str) -> bool {
        let (known, first) =
            self.known.entry(name.to_owned()).or_insert_with(|| (shape.to_owned(), place.to_owned())).clone();
        // What is asked for of all alternatives needs no second mention, and two objects may differ inside.
        first == place || (!first.is_empty() && known == shape && shape != "{}")
    }
}

/// Orders fields: those first that say most, then as the schema has them.
pub(super) fn most_telling(mut fields: Vec<&GraphqlField>) -> Vec<&GraphqlField> {
    fields.sort_by_key(|field| TELLING.iter().position(|name| *name == field.name).unwrap_or(TELLING.len()));
    fields
}

/// Whether a field can be asked for without arguments and says something about the thing itself, not about who asks,
/// and not what another field says as well.
pub(super) fn is_usable(field: &GraphqlField) -> bool {
    let is_noise = field.name == "clientMutationId" || field.name.starts_with("viewer") || field.name.ends_with("HTML");
    let needs_arguments = field.arguments.iter().any(super::schema::GraphqlArgument::is_required);
    !field.is_deprecated && !needs_arguments && !is_noise
}

fn is_position(field: &GraphqlField) -> bool {
    matches!(field.name.as_str(), "pageInfo" | "page_info")
}

/// Whether the type is one page of a list.
fn is_page(known: &GraphqlType) -> bool {
    known.fields.iter().any(is_position)
}

fn first_argument(field: &GraphqlField) -> String {
    let has_first = field.arguments.iter().any(|argument| argument.name == "first");
    if has_first { format!("(first: {INNER_ITEMS})") } else { String::new() }
}
