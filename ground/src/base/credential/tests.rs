//! What is masked, what stays readable, and how long it takes.

use std::time::{Duration, Instant};

use protocol::code::Code;
use serde_json::json;

use super::*;

#[test]
fn a_user_in_a_url_is_no_credential_without_a_password() {
    for (text, is_masked) in [
        ("https://reader@db.example/x", false),
        ("postgres://reader@127.0.0.1:5432/shop", false),
        ("https://reader:pass@db.example/x", true),
        ("https://:pass@db.example/x", true),
        ("https://0123456789abcdefghij@git.example/x", true),
    ] {
        assert_eq!(mask(text) != text, is_masked, "{text}");
    }
}

#[test]
fn what_looks_like_a_credential_is_masked() {
    let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nq83v/+=\n-----END RSA PRIVATE KEY-----";
    for (text, expected) in [
        ("could not connect to postgres://app:hunter2@db/x", "could not connect to postgres://app:[hidden]@db/x"),
        ("redis://:p@ss:w0rd@cache:6379/0 refused", "redis://:[hidden]@cache:6379/0 refused"),
        ("fatal: https://0123456789abcdefghij@git.example/x", "fatal: https://[hidden]@git.example/x"),
        ("host=db user=app password=hunter2 dbname=x", "host=db user=app password=[hidden] dbname=x"),
        ("Server=db;Pwd=swordfish;Database=x", "Server=db;Pwd=[hidden];Database=x"),
        ("connect(user='app', password='correct horse', x=1)", "connect(user='app', password='[hidden]', x=1)"),
        ("export DB_PASSWORD=swordfish", "export DB_PASSWORD=[hidden]"),
        ("GET /x?api_key=abc&token=def&n=1", "GET /x?api_key=[hidden]&token=[hidden]&n=1"),
        ("?X-Amz-Signature=ab12&x=1", "?X-Amz-Signature=[hidden]&x=1"),
        ("password: hunter2", "password: [hidden]"),
        ("Password: hunter2 is wrong", "Password: [hidden] is wrong"),
        ("X-Api-Key: abcdef", "X-Api-Key: [hidden]"),
        ("client_secret => 'abc'", "client_secret => '[hidden]'"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = [hidden]"),
        (r#"{"password":"sw\"ord","n":1}"#, r#"{"password":"[hidden]","n":1}"#),
        (r#"{"body":"{\"password\":\"swordfish\",\"n\":1}"}"#, r#"{"body":"{\"password\":\"[hidden]\",\"n\":1}"}"#),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [hidden]"),
        ("send `Authorization: Bearer ab12`; to go on", "send `Authorization: Bearer [hidden]`; to go on"),
        ("curl -H 'authorization: Basic dXNlcjpwYXNz' x", "curl -H 'authorization: Basic [hidden]' x"),
        ("sent bearer 0123456789abcdef", "sent bearer [hidden]"),
        ("Set-Cookie: sid=abc; Path=/\nnext", "Set-Cookie: [hidden]\nnext"),
        (key, "[hidden]"),
        ("key:\n-----BEGIN PRIVATE KEY-----\nMIIEpAIB\nAAKC", "key:\n[hidden]"),
        ("…\nMIIEpAIB\nAAKC==\n-----END PRIVATE KEY-----\nbye", "…[hidden]\nbye"),
        ("id AKIAIOSFODNN7EXAMPLE", "id [hidden]"),
        ("ghp_16C7e42F292c6912E7710c838347Ae178B4a and", "[hidden] and"),
        ("github_pat_11ABCDEFG0abcdefghij_klmnop", "[hidden]"),
        ("xoxb-123456789012-abcdef", "[hidden]"),
        ("Incorrect API key provided: sk-proj-abcdefgh12345678ijkl.", "Incorrect API key provided: [hidden]."),
        ("client_secret:abc1 and secret:github.", "client_secret:[hidden] and secret:github."),
        ("sk-ant-api03-abcdefgh12345678-ijkl", "[hidden]"),
        ("key AIzaSyA1234567890abcdefghijklmnopqrstuv", "key [hidden]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "[hidden]"),
        ("https://hooks.slack.com/services/T0/B0/abc", "https://hooks.slack.com/services/[hidden]"),
    ] {
        assert_eq!(mask(text), expected);
        assert_eq!(mask(expected), expected, "masking twice changes nothing");
    }
}

#[test]
fn ordinary_text_stays_as_it_is() {
    let picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let image = format!("data:image/png;base64,{picture}");
    for text in [
        "",
        "/home/ann/.config/secrets/token/readme.md:12:7: no such file",
        "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "id 01a1b2c3-d4e5-7f60-8192-a3b4c5d6e7f8 is gone",
        &image,
        "SyntaxError: Unexpected token: expected `}`",
        "unexpected token: 'else'",
        "let token = parse(input)?;",
        "password = getpass(\"x\")",
        "password: must have at least 8 characters",
        r#"{"password": "is required"}"#,
        r#"{"password": null, "token": true}"#,
        "the password is wrong",
        "password required",
        "basic authentication failed; use bearer authentication",
        "Authorization: header was missing",
        "send `Authorization: Bearer KEY`; to make a key: agent-magic-tool serve key create NAME",
        "secret:github is not set; agent-magic-tool secret set github",
        "Authorization: Bearer secret:github",
        "password=[secret:db] token=${TOKEN} api_key=<your key> secret={{ x }}",
        "max_tokens=4096 tokens: 12 tokenizer=cl100k",
        "https://example.com:8080/a@b and user@host:/path and ssh://git@github.com/x",
        "sk-loading-spinner-container-wide",
        "年度报告 password 没有",
    ] {
        assert!(matches!(mask(text), Cow::Borrowed(same) if same == text), "{text} -> {}", mask(text));
    }
}

#[test]
fn a_value_is_masked_by_the_name_of_its_field() {
    let mut error = ErrorBody::new(Code::ApiError, "token=abcdef").hint("https://u:p@h").detail(
        "response",
        json!({"auth": {"access_token": "0123456789", "password": "swordfish", "token_type": "bearer"},
            "errors": {"password": "is too short", "token": "invalid"}, "Authorization": "Basic dXNlcjpwYXNz", "list": ["pwd=a b", 7]}),
    );
    mask_error(&mut error);
    let expected = ErrorBody::new(Code::ApiError, "token=[hidden]").hint("https://u:[hidden]@h").detail(
        "response",
        json!({"auth": {"access_token": "[hidden]", "password": "[hidden]", "token_type": "bearer"},
            "errors": {"password": "is too short", "token": "invalid"}, "Authorization": "Basic [hidden]", "list": ["pwd=[hidden] b", 7]}),
    );
    assert_eq!(error, expected);
}

#[test]
fn the_time_is_linear_in_the_text() {
    const BYTES: usize = 1 << 17;
    for part in [
        "a",
        "password:",
        "token:${",
        "cookie:token:9&",
        "cookie: a",
        "x://y:",
        "token:'a ",
        "token:\"a token:'b ",
        "password:\"\\\"",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "-----BEGIN ",
        "eyJabcdefgh.",
        "sk-a-",
        "Bearer a ",
        "authorization: a ",
        "?sig=&",
        "\\\\\"",
        "=",
        "password=",
    ] {
        let text = part.repeat(BYTES / part.len());
        let started = Instant::now();
        mask(&text);
        // Generous, since other tests run meanwhile; quadratic time would take minutes.
        assert!(started.elapsed() < Duration::from_secs(20), "{part}: {:?}", started.elapsed());
    }
}
