//! The columns that are hidden unless a human says otherwise, each of them.

use serde_json::json;

use super::Shop;

/// A name for each pattern of the list, which the crate `sql` compares with its own, as shops and frameworks write it.
const NAMES: &[(&str, &[&str])] = &[
    ("*.*password*", &["password", "user_password_hash"]),
    ("*.*passwd*", &["passwd", "shadow_passwd"]),
    ("*.*passphrase*", &["passphrase"]),
    ("*.pwd", &["pwd"]),
    ("*.pwd_*", &["pwd_hash"]),
    ("*.*_pwd", &["old_pwd"]),
    ("*.pass_hash", &["pass_hash"]),
    ("*.user_pass", &["user_pass"]),
    ("*.pin", &["pin"]),
    ("*.pin_code", &["pin_code"]),
    ("*.pin_hash", &["pin_hash"]),
    ("*.salt", &["salt"]),
    ("*.*_salt", &["user_salt"]),
    ("*.*secret*", &["client_secret", "secretkey"]),
    ("*.token", &["token"]),
    ("*.*_token", &["refresh_token"]),
    ("*.*_tokens", &["push_tokens"]),
    ("*.token_*", &["token_value"]),
    ("*.*accesstoken*", &["oauthaccesstoken1"]),
    ("*.*refreshtoken*", &["oauthrefreshtoken1"]),
    ("*.rp_token*", &["rp_tokens1"]),
    ("*.*api_key*", &["api_key", "stripe_api_keys"]),
    ("*.*apikey*", &["apikey1"]),
    ("*.*private_key*", &["private_key_pem"]),
    ("*.*privatekey*", &["privatekey"]),
    ("*.*encryption_key*", &["encryption_key"]),
    ("*.*signing_key*", &["signing_key_id"]),
    ("*.*credential*", &["credentials"]),
    ("*.otp", &["otp"]),
    ("*.otp_*", &["otp_seed"]),
    ("*.*_otp", &["last_otp"]),
    ("*.*totp*", &["totp_seed"]),
    ("*.*mfa_*", &["mfa_seed"]),
    ("*.*2fa*", &["is_2fa"]),
    ("*.*two_factor*", &["two_factor_codes"]),
    ("*.*twofactor*", &["twofactorcode"]),
    ("*.*recovery_code*", &["recovery_codes"]),
    ("*.*backup_code*", &["backup_codes"]),
    ("*.session_id", &["session_id"]),
    ("*.sessionid", &["sessionid"]),
    ("*.session_key", &["session_key"]),
    ("*.session_data", &["session_data"]),
    ("*.*cookie*", &["remember_cookie"]),
    ("*.*webhook_key*", &["webhook_key"]),
    ("*.user_activation_key", &["user_activation_key"]),
    ("*.cvv", &["cvv"]),
    ("*.cvc", &["cvc"]),
    ("*.*card_number*", &["card_number"]),
    ("*.*cc_number*", &["cc_numbers"]),
    ("*.cc_number_enc", &["cc_number_enc"]),
    ("*.iban", &["iban"]),
    ("*.ssn", &["ssn"]),
];

#[test]
fn every_column_of_the_default_list_is_hidden() {
    let Some(shop) = Shop::new("sqlite", "") else { return };
    let columns = || NAMES.iter().flat_map(|(_, names)| *names);
    for (table, case) in [("lower_case", str::to_lowercase as fn(&str) -> String), ("upper_case", str::to_uppercase)] {
        let written: Vec<_> = columns().map(|name| case(name)).collect();
        shop.sql(&format!(
            "CREATE TABLE {table} (id INTEGER PRIMARY KEY, plain TEXT, \"{}\" TEXT); INSERT INTO {table} (id, plain) VALUES (1, 'seen');",
            written.join("\" TEXT, \"")
        ));
        let answer = shop.query(&format!("SELECT * FROM {table}"));
        assert_eq!(answer["data"]["data"], json!([{"id": 1, "plain": "seen"}]), "{table}: {answer:#}");
        for name in &written {
            let answer = shop.query(&format!("SELECT \"{name}\" FROM {table}"));
            assert_eq!(answer["error"]["code"], "invalid-input", "{table}.{name}: {answer:#}");
        }
        let described = shop.world.result_of("shop_describe_table", &json!({"table": table}));
        assert_eq!(described["data"]["columns"].as_array().map(Vec::len), Some(2), "{described:#}");
    }
}

/// A row of an heir is a row of the table from which it inherits, and a column may hold whole rows.
#[test]
fn what_is_hidden_stays_so_in_heirs_and_in_columns_of_whole_rows() {
    let Some(shop) =
        Shop::new("postgres", "hidden_columns = [\"customer_entity.email\"]\ndeny_tables = [\"admin_user\"]")
    else {
        return;
    };
    shop.sql(
        "CREATE TABLE heir () INHERITS (customer_entity); CREATE TABLE heir_of_heir () INHERITS (heir); \
         INSERT INTO heir_of_heir SELECT * FROM ONLY customer_entity LIMIT 1; \
         CREATE TABLE admin_heir () INHERITS (admin_user); \
         CREATE TABLE rows_kept (id INTEGER, one customer_entity, many customer_entity[], denied admin_user); \
         INSERT INTO rows_kept SELECT 1, c, ARRAY[c] FROM ONLY customer_entity AS c LIMIT 1; \
         CREATE TYPE pair AS (number INTEGER, customer customer_entity); CREATE DOMAIN kept_customer AS customer_entity; \
         CREATE TYPE place AS (street TEXT, city TEXT); \
         CREATE TABLE nested (id INTEGER, pair pair, pairs pair[], kept kept_customer, outer_row rows_kept, place place); \
         INSERT INTO nested SELECT 1, ROW(1, c)::pair, ARRAY[ROW(1, c)::pair], c, r, ROW('a', 'b')::place \
             FROM ONLY customer_entity AS c, rows_kept AS r LIMIT 1;",
    );
    for hidden in [
        "SELECT email FROM heir",
        "SELECT email FROM heir_of_heir",
        "SELECT to_json(h) FROM heir_of_heir AS h WHERE email IS NOT NULL",
        "SELECT * FROM admin_heir",
        "SELECT one FROM rows_kept",
        "SELECT to_json(one) AS j FROM rows_kept",
        "SELECT (one).email AS e FROM rows_kept",
        "SELECT many FROM rows_kept",
        "SELECT denied FROM rows_kept",
        "SELECT pair FROM nested",
        "SELECT pairs FROM nested",
        "SELECT kept FROM nested",
        "SELECT outer_row FROM nested",
    ] {
        let answer = shop.query(hidden);
        assert_eq!(answer["status"], "failed", "{hidden}: {answer:#}");
    }
    for (shown, columns) in
        [("SELECT * FROM heir_of_heir", "entity_id"), ("SELECT * FROM rows_kept", "id"), ("SELECT * FROM nested", "id")]
    {
        let answer = shop.query(shown);
        let row = &answer["data"]["data"][0];
        assert!(
            row[columns].is_number() && row["email"].is_null() && !row.to_string().contains('@'),
            "{shown}: {answer:#}"
        );
    }
}
