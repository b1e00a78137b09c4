//! A view that was replaced a moment ago shows nothing that is hidden, and is the table of no rule any more.

use serde_json::json;

use super::each;

const PEOPLE: &str = "CREATE TABLE people (id INTEGER PRIMARY KEY, name VARCHAR(20), iban VARCHAR(20)); \
    CREATE TABLE free (id INTEGER PRIMARY KEY, name VARCHAR(20)); \
    INSERT INTO people VALUES (1, 'one', 'DE1'); INSERT INTO free VALUES (1, 'two'); \
    CREATE VIEW shown AS SELECT id, name FROM people; CREATE VIEW ruled AS SELECT id, name FROM free;";
const REPLACED: &str = "DROP VIEW shown; CREATE VIEW shown AS SELECT id, iban AS name FROM people; \
    DROP VIEW ruled; CREATE VIEW ruled AS SELECT id, name FROM people;";

#[test]
fn what_a_view_reads_is_looked_at_whenever_it_is_named() {
    each("hidden_columns = [\"*.iban\"]", |shop| {
        shop.sql(PEOPLE);
        let config = shop.configured();
        shop.world
            .configure(&format!("{config}\n[[confirm.rules]]\ngates = [\"db.shop.people.read\"]\nthen = \"refuse\"\n"));
        let code = |query: &str| shop.code_of("shop_query", &json!({"query": query}));
        assert_eq!(code("SELECT name FROM ruled"), "none", "{}", shop.kind);
        shop.sql(REPLACED);
        assert_eq!(code("SELECT name FROM ruled"), "refused-by-policy", "{}", shop.kind);
        shop.world.configure(&config);
        shop.sql("DROP VIEW shown; CREATE VIEW shown AS SELECT id, name FROM people;");
        assert_eq!(code("SELECT name FROM shown"), "none", "{}", shop.kind);
        shop.sql(REPLACED);
        assert_ne!(code("SELECT name FROM shown"), "none", "{}", shop.kind);
    });
}
