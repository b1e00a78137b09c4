//! Tests of the import of GraphQL schemas.

use serde_json::json;

use super::*;

const SHOP: &str = r#"
"A shop."
schema { query: Shop mutation: Changes }
type Shop {
  "Finds an order by its number."
  order(number: Int!, in: String): Order
  orders(first: Int, after: String, last: Int, before: String, status: Status = OPEN): OrderConnection!
  searchProducts(filter: ProductFilter): [Found!]!
  oldOrders: [Order] @deprecated(reason: "use orders")
}
extend type Shop { version: String! }
type Changes {
  createOrder(input: CreateOrderInput!): CreateOrderPayload
  deleteOrder(id: ID!): Boolean!
}
type Order implements Node {
  id: ID! number: Int! status: Status! total: Money buyer: Person
  lines(first: Int): LineConnection!  note(language: String!): String
  secret: String @deprecated
}
interface Node { id: ID! }
type Money { amount: Float! currency: String! }
type Person { id: ID! name: String friend: Person orders: [Order!]! }
type OrderConnection { edges: [OrderEdge] nodes: [Order] pageInfo: PageInfo! totalCount: Int! }
type OrderEdge { node: Order cursor: String! }
type LineConnection { nodes: [Line] pageInfo: PageInfo! }
type Line { id: ID! sku: String! }
type PageInfo { endCursor: String hasNextPage: Boolean! }
type Product { id: ID! title: String! price: Float }
type Bundle { id: ID! title: String price: Money parts: [Product] }
union Found = Product | Bundle
enum Status { OPEN SHIPPED @deprecated PAID }
input CreateOrderInput { clientMutationId: String "What is bought." lines: [LineInput!]! note: String due: DateTime }
input LineInput { sku: String! count: Int = 1 }
input ProductFilter { title: String and: [ProductFilter!] price: Range }
input Range { min: Float max: Float }
type CreateOrderPayload { order: Order clientMutationId: String }
scalar DateTime
"#;

fn options() -> ImportOptions {
    ImportOptions { server: Some("https://api.shop.example/graphql".to_owned()), ..ImportOptions::default() }
}

fn of_sdl(text: &str, options: &ImportOptions) -> Result<Imported, ImportError> {
    let document = Document { from: "shop.graphql".to_owned(), text: text.to_owned(), data: Value::Null };
    import(&document, options)
}

fn shop(options: &ImportOptions) -> Imported {
    of_sdl(SHOP, options).expect("a schema")
}

fn definition(imported: &Imported, name: &str) -> Value {
    let found = imported.subtools.iter().find(|subtool| subtool.name == format!("shop_{name}"));
    Value::Object(found.unwrap_or_else(|| panic!("no {name}")).definition.clone())
}

fn query(imported: &Imported, name: &str) -> String {
    definition(imported, name)["run"]["http"]["body"]["json"]["query"].as_str().expect("a query").to_owned()
}

#[test]
fn each_root_field_becomes_a_subtool() {
    let imported = shop(&options());
    let names: Vec<_> = imported.subtools.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "shop_get_order",
            "shop_list_orders",
            "shop_search_products",
            "shop_get_version",
            "shop_create_order",
            "shop_delete_order"
        ]
    );
    let left_out: Vec<_> = imported.left_out.iter().map(|it| format!("{}: {}", it.what, it.reason)).collect();
    assert_eq!(left_out, ["query oldOrders: deprecated"]);
    assert_eq!(imported.defaults["run"]["http"]["base_url"], "https://api.shop.example/graphql");
    assert_eq!(definition(&imported, "get_order")["annotations"], json!({"readOnlyHint": true}));
    assert_eq!(definition(&imported, "create_order").get("annotations"), None);
    assert_eq!(definition(&imported, "delete_order")["annotations"], json!({"destructiveHint": true}));
}

#[test]
fn a_query_is_text_with_variables() {
    let imported = shop(&options());
    assert_eq!(
        definition(&imported, "get_order"),
        json!({
            "description": "Finds an order by its number. Returns `Order`: id, number, status, total, buyer, lines.",
            "input": {
                "type": "object",
                "properties": {
                    "number": {"type": "integer", "description": "Number."},
                    "in": {"type": "string", "description": "In."}
                },
                "required": ["number"],
                "additionalProperties": false
            },
            "annotations": {"readOnlyHint": true},
            "run": {"http": {"body": {"json": {
                "query": "query order($number: Int!, $in: String) { order(number: $number, in: $in) \
                          { id number status total { amount currency } buyer { id name } } }",
                "variables": {"number": "{{ number }}", "in": "{{ input.in }}"}
            }}}},
            "result": {"select": "if (.errors // []) != [] then error([.errors[].message] | join(\"; \")) else .data.order end"}
        })
    );
    assert_eq!(query(&imported, "get_version"), "query version { version }");
}

#[test]
fn a_page_is_asked_for_with_its_items_and_where_it_ends() {
    let imported = shop(&options());
    assert_eq!(
        query(&imported, "list_orders"),
        "query orders($first: Int, $after: String, $status: Status) { orders(first: $first, after: $after, status: $status) \
         { totalCount pageInfo { endCursor hasNextPage } nodes { id number status total { amount currency } buyer { id name } } } }"
    );
    let input = &definition(&imported, "list_orders")["input"]["properties"];
    assert_eq!(input["first"], json!({"type": "integer", "default": 10, "description": "First."}));
    assert_eq!(
        input["status"],
        json!({"type": "string", "enum": ["OPEN", "PAID"], "default": "OPEN", "description": "Status."})
    );
    let deep = shop(&ImportOptions { others: [(ANSWER_DEPTH.to_owned(), "3".to_owned())].into(), ..options() });
    assert!(
        query(&deep, "get_order").contains("lines(first: 10) { pageInfo { endCursor hasNextPage } nodes { id sku } }")
    );
}

#[test]
fn alternatives_are_asked_for_by_type_without_conflicts() {
    // `title` and `price` have other types in a bundle, so asking for both under one name would be an error.
    assert_eq!(
        query(&shop(&options()), "search_products"),
        "query searchProducts($filter: ProductFilter) { searchProducts(filter: $filter) { __typename \
         ... on Product { id title price } ... on Bundle { id parts { id title price } } } }"
    );
}

#[test]
fn the_only_input_object_becomes_the_input_and_cycles_are_cut() {
    let imported = shop(&options());
    let create = definition(&imported, "create_order");
    assert_eq!(
        create["input"],
        json!({
            "type": "object",
            "properties": {
                "lines": {"type": "array", "items": {
                    "type": "object",
                    "properties": {
                        "sku": {"type": "string", "description": "Sku."},
                        "count": {"type": "integer", "default": 1, "description": "Count."}
                    },
                    "required": ["sku"],
                    "additionalProperties": false
                }, "description": "What is bought."},
                "note": {"type": "string", "description": "Note."},
                "due": {"type": "string", "description": "Due. A time like `2026-05-01T09:00:00Z`."}
            },
            "required": ["lines"],
            "additionalProperties": false
        })
    );
    assert_eq!(create["run"]["http"]["body"]["json"]["variables"], json!({"input": "{{ input }}"}));
    let filter = &definition(&imported, "search_products")["input"]["properties"]["filter"]["properties"];
    assert_eq!(
        filter["and"]["items"],
        json!({"type": "object", "description": "Has the fields of `ProductFilter`, as above."})
    );
}

#[test]
fn an_introspection_result_gives_the_same_as_the_text() {
    let (document, mistakes) = sdl::introspection(SHOP);
    assert_eq!(mistakes, [""; 0]);
    assert!(
        is_introspection(&document)
            && is_sdl(SHOP)
            && !is_sdl("{\"type\": {}}")
            && !is_sdl("openapi: 3.0.0\ninput: {}\n")
    );
    let text = json!({"data": document}).to_string();
    let result = Document::new("https://api.shop.example/graphql", text).expect("JSON");
    assert!(recognizes(&result));
    let imported = import(&result, &ImportOptions::default()).expect("a schema");
    assert_eq!(imported.subtools, shop(&options()).subtools);
    assert!(of_sdl("scalar A", &options()).is_err());
    let nowhere = of_sdl(SHOP, &ImportOptions::default()).expect_err("no server is named");
    assert_eq!(nowhere.hint.as_deref(), Some("name it with --server URL"));
    let refused = Document::new("x", json!({"errors": [{"message": "no introspection"}]}).to_string()).expect("JSON");
    let refused = import(&refused, &options()).expect_err("no schema");
    assert_eq!(refused.message, "the server does not tell its schema: no introspection");
}

#[test]
fn what_cannot_be_parsed_hides_nothing_else() {
    let imported = of_sdl("type Query { a: Int b(: Int }\ntype Broken {{{\n", &options()).expect("a schema");
    assert_eq!(imported.subtools[0].name, "shop_get_a");
    assert!(!imported.left_out.is_empty());
    let deep = format!("type Query {{ a(x: {}Int{}): Int }}", "[".repeat(5000), "]".repeat(5000));
    assert!(of_sdl(&deep, &options()).is_err(), "nothing of it can be imported");
    assert!(of_sdl("type Query {", &options()).is_err(), "it is cut off");
}
