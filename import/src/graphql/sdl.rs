//! The schema definition language of GraphQL, rewritten as the introspection result that such a server would give.
//!
//! Parts of a schema are joined: an extension of a type that stands elsewhere becomes that type. What cannot be parsed
//! is reported and the rest is kept.

use apollo_parser::cst::{self, CstNode as _, Definition, Type};
use apollo_parser::{Parser, SyntaxNode};
use serde_json::{Map, Value, json};

/// How deep a document may nest; a schema needs about ten.
const MAX_NESTING: usize = 200;
/// The longest document, in tokens: ten times the largest public schemas.
const MAX_TOKENS: usize = 5_000_000;

/// Returns the introspection result for `text`, and what could not be parsed.
pub(super) fn introspection(text: &str) -> (Value, Vec<String>) {
    let tree = Parser::new(text).recursion_limit(MAX_NESTING).token_limit(MAX_TOKENS).parse();
    let mistakes = tree.errors().map(|error| format!("{} (at character {})", error.message(), error.index())).collect();
    let mut joined = SchemaParts::default();
    for definition in tree.document().definitions() {
        joined.add(&definition);
    }
    (joined.finish(), mistakes)
}

#[derive(Default)]
struct SchemaParts {
    types: Map<String, Value>,
    /// `query` and `mutation`, if a `schema` block names them.
    roots: Map<String, Value>,
    /// An object and an interface that it implements.
    implementations: Vec<(String, String)>,
}

impl SchemaParts {
    fn add(&mut self, definition: &Definition) {
        match definition {
            Definition::SchemaDefinition(it) => self.add_roots(it.root_operation_type_definitions()),
            Definition::SchemaExtension(it) => self.add_roots(it.root_operation_type_definitions()),
            Definition::ScalarTypeDefinition(_) | Definition::ScalarTypeExtension(_) => {
                self.add_type(definition, "SCALAR");
            }
            Definition::ObjectTypeDefinition(_) | Definition::ObjectTypeExtension(_) => {
                self.add_type(definition, "OBJECT");
            }
            Definition::InterfaceTypeDefinition(_) | Definition::InterfaceTypeExtension(_) => {
                self.add_type(definition, "INTERFACE");
            }
            Definition::UnionTypeDefinition(_) | Definition::UnionTypeExtension(_) => {
                self.add_type(definition, "UNION");
            }
            Definition::EnumTypeDefinition(_) | Definition::EnumTypeExtension(_) => self.add_type(definition, "ENUM"),
            Definition::InputObjectTypeDefinition(_) | Definition::InputObjectTypeExtension(_) => {
                self.add_type(definition, "INPUT_OBJECT");
            }
            Definition::OperationDefinition(_)
            | Definition::FragmentDefinition(_)
            | Definition::DirectiveDefinition(_) => {}
        }
    }

    fn add_roots(&mut self, roots: impl Iterator<Item = cst::RootOperationTypeDefinition>) {
        for root in roots {
            let (Some(operation), Some(named)) = (root.operation_type(), root.named_type()) else { continue };
            let kind = if operation.query_token().is_some() {
                "query"
            } else if operation.mutation_token().is_some() {
                "mutation"
            } else {
                continue;
            };
            self.roots.insert(kind.to_owned(), name(named.name()).into());
        }
    }

    fn add_type(&mut self, definition: &Definition, kind: &str) {
        let syntax = definition.syntax();
        let name = name(definition.name());
        if name.is_empty() {
            return;
        }
        let known = self.types.entry(name.clone()).or_insert_with(|| json!({"name": name, "description": null}));
        known["kind"] = kind.into();
        if let Some(description) = description(child(syntax)) {
            known["description"] = description;
        }
        let fields = child::<cst::FieldsDefinition>(syntax).into_iter().flat_map(|it| it.field_definitions());
        append(known, "fields", fields.filter_map(|it| field(&it)));
        let inputs =
            child::<cst::InputFieldsDefinition>(syntax).into_iter().flat_map(|it| it.input_value_definitions());
        append(known, "inputFields", inputs.filter_map(|it| argument(&it)));
        let values = child::<cst::EnumValuesDefinition>(syntax).into_iter().flat_map(|it| it.enum_value_definitions());
        append(known, "enumValues", values.filter_map(|it| enum_value(&it)));
        let members = child::<cst::UnionMemberTypes>(syntax).into_iter().flat_map(|it| it.named_types());
        append(known, "possibleTypes", members.map(|it| json!({"name": self::name(it.name())})));
        if kind == "OBJECT" {
            let interfaces = child::<cst::ImplementsInterfaces>(syntax).into_iter().flat_map(|it| it.named_types());
            self.implementations.extend(interfaces.map(|it| (name.clone(), self::name(it.name()))));
        }
    }

    fn finish(mut self) -> Value {
        for (object, interface) in self.implementations {
            if let Some(known) = self.types.get_mut(&interface) {
                append(known, "possibleTypes", std::iter::once(json!({"name": object})));
            }
        }
        let root = |kind: &str, usual: &str| match self.roots.get(kind) {
            Some(name) => json!({"name": name}),
            None if self.types.contains_key(usual) => json!({"name": usual}),
            None => Value::Null,
        };
        let (query, mutation) = (root("query", "Query"), root("mutation", "Mutation"));
        let types: Vec<_> = self.types.into_iter().map(|(_, known)| known).collect();
        json!({"__schema": {"queryType": query, "mutationType": mutation, "types": types}})
    }
}

fn append(known: &mut Value, key: &str, items: impl Iterator<Item = Value>) {
    let mut items = items.peekable();
    if items.peek().is_none() {
        return;
    }
    if !known[key].is_array() {
        known[key] = json!([]);
    }
    let Some(list) = known[key].as_array_mut() else { return };
    for item in items {
        // Published schemas repeat fields.
        if list.iter().all(|known| known["name"] != item["name"]) {
            list.push(item);
        }
    }
}

fn child<N: cst::CstNode>(syntax: &SyntaxNode) -> Option<N> {
    syntax.children().find_map(N::cast)
}

fn name(name: Option<cst::Name>) -> String {
    name.map(|name| name.text().to_string()).unwrap_or_default()
}

fn description(description: Option<cst::Description>) -> Option<Value> {
    Some(String::from(description?.string_value()?).into())
}

fn is_deprecated(directives: Option<cst::Directives>) -> bool {
    directives.into_iter().flat_map(|it| it.directives()).any(|it| name(it.name()) == "deprecated")
}

fn field(field: &cst::FieldDefinition) -> Option<Value> {
    let arguments = field.arguments_definition().into_iter().flat_map(|it| it.input_value_definitions());
    Some(json!({
        "name": name(field.name()),
        "description": description(field.description()),
        "isDeprecated": is_deprecated(field.directives()),
        "type": reference(&field.ty()?)?,
        "args": arguments.filter_map(|it| argument(&it)).collect::<Vec<_>>(),
    }))
}

fn argument(argument: &cst::InputValueDefinition) -> Option<Value> {
    let default = argument.default_value().and_then(|it| it.value()).map(|it| it.syntax().text().to_string());
    Some(json!({
        "name": name(argument.name()),
        "description": description(argument.description()),
        "defaultValue": default.map(|text| text.trim().to_owned()),
        "type": reference(&argument.ty()?)?,
    }))
}

fn enum_value(value: &cst::EnumValueDefinition) -> Option<Value> {
    Some(json!({
        "name": name(value.enum_value()?.name()),
        "description": description(value.description()),
        "isDeprecated": is_deprecated(value.directives()),
    }))
}

fn reference(kind: &Type) -> Option<Value> {
    let named = |named: &cst::NamedType| json!({"kind": "NAMED", "name": name(named.name())});
    let list = |list: &cst::ListType| Some(json!({"kind": "LIST", "ofType": reference(&list.ty()?)?}));
    match kind {
        Type::NamedType(it) => Some(named(it)),
        Type::ListType(it) => list(it),
        Type::NonNullType(it) => {
            let inner = it.named_type().as_ref().map(named).or_else(|| list(&it.list_type()?))?;
            Some(json!({"kind": "NON_NULL", "ofType": inner}))
        }
    }
}
