//! Assembles what is sent from a draft: this is where secrets are opened, at the moment of use.

use base64::Engine as _;
use definition::run::http::Parameter;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{RequestBuilder, multipart};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio_util::io::ReaderStream;
use url::Url;

use super::call::{HttpCall, RequestTarget, may_keep_credentials};
use super::oauth::AccessToken;
use super::pages::put;
use super::placement::{PlacedJson, PlacedPairs, PlacedValue, encode, encode_redacted, encoded, scalar, with_query};
use super::request::{DraftBody, DraftPart};
use super::{Code, Failure};
use crate::input_file;

impl HttpCall<'_> {
    pub(super) async fn headers(&self, access: Option<&AccessToken>) -> Result<HeaderMap, Failure> {
        let mut headers = HeaderMap::new();
        let is_multipart = matches!(self.draft.body, Some(DraftBody::Multipart(_)));
        for (name, placed) in &self.draft.headers {
            if is_multipart && *name == CONTENT_TYPE {
                // reqwest sets this header, with the boundary.
                continue;
            }
            let text = self.reveal(placed, access).await?;
            headers.append(name.clone(), header_value(name, &text, placed)?);
        }
        Ok(headers)
    }

    /// Returns the URL of `target`. A URL from a response gets the secrets of the declared query, which a server does
    /// not repeat in its links.
    pub(super) async fn url(&self, target: &RequestTarget, access: Option<&AccessToken>) -> Result<Url, Failure> {
        let mut query = self.revealed(&self.draft.query, access).await?;
        let address = match target {
            RequestTarget::Declared | RequestTarget::Page(Parameter::Body(_), _) => self.draft.address.clone(),
            RequestTarget::Page(Parameter::Query(name), value) => {
                query.retain(|(known, _)| known != name);
                query.push((name.clone(), PlacedValue::Text(scalar(value))));
                self.draft.address.clone()
            }
            RequestTarget::Link(url) | RequestTarget::Job(url) => {
                let is_foreign = !may_keep_credentials(&self.draft.address, url);
                let mut index = 0;
                query.retain(|(name, _)| {
                    let was_secret = self.draft.query[index].1.is_secret();
                    index += 1;
                    was_secret && !is_foreign && url.query_pairs().all(|(known, _)| known != name.as_str())
                });
                url.clone()
            }
        };
        Ok(with_query(address, &query, encode_redacted))
    }

    /// Returns the body of `target`, if it has one.
    pub(super) fn body(&self, target: &RequestTarget) -> Result<Option<DraftBody>, Failure> {
        let body = self.draft.body.clone().filter(|_| !matches!(target, RequestTarget::Job(_)));
        let RequestTarget::Page(Parameter::Body(pointer), value) = target else { return Ok(body) };
        if let Some(DraftBody::Json(mut json)) = body
            && put(&mut json.value, pointer, Some(value.clone()))
        {
            return Ok(Some(DraftBody::Json(json)));
        }
        Err(Failure::new(Code::TemplateFailed, format!("the body has no object that could hold `{pointer}`")))
    }

    /// Replaces the secrets in `pairs` with their values.
    async fn revealed(&self, pairs: &PlacedPairs, access: Option<&AccessToken>) -> Result<PlacedPairs, Failure> {
        let mut revealed = PlacedPairs::with_capacity(pairs.len());
        for (name, placed) in pairs {
            revealed.push((name.clone(), PlacedValue::Text(self.reveal(placed, access).await?)));
        }
        Ok(revealed)
    }

    /// Replaces the secrets in `json` with their values.
    async fn revealed_json(&self, json: &PlacedJson) -> Result<Value, Failure> {
        let mut value = json.value.clone();
        for (pointer, name) in &json.secrets {
            let secret = self.context.secrets.get_for(name, &self.draft.secrets_for).await?;
            let text = Value::String(secret.expose().to_owned());
            // A body contains the escaped value, without the quotes, and a server may echo that.
            let escaped = text.to_string();
            self.context.secrets.watch(name.as_str(), &escaped[1..escaped.len() - 1]);
            if let Some(place) = value.pointer_mut(pointer) {
                *place = text;
            }
        }
        Ok(value)
    }

    async fn reveal(&self, placed: &PlacedValue, access: Option<&AccessToken>) -> Result<String, Failure> {
        let secrets = &self.context.secrets;
        Ok(match placed {
            PlacedValue::Text(text) => text.clone(),
            PlacedValue::Secret { prefix, name } => {
                let secret = secrets.get_for(name, &self.draft.secrets_for).await?;
                // A query contains the encoded value, and a server may echo that.
                secrets.watch(name.as_str(), &encode(secret.expose()));
                format!("{prefix}{}", secret.expose())
            }
            PlacedValue::Token(_) => format!("Bearer {}", access.map_or("", |access| access.value.expose())),
            PlacedValue::Basic { username, password } => {
                let username = Box::pin(self.reveal(username, access)).await?;
                let pair = format!("{username}:{}", secrets.get_for(password, &self.draft.secrets_for).await?.expose());
                let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
                secrets.watch(password.as_str(), &encoded);
                format!("Basic {encoded}")
            }
        })
    }

    pub(super) async fn with_body(
        &self,
        request: RequestBuilder,
        body: &DraftBody,
        access: Option<&AccessToken>,
    ) -> Result<RequestBuilder, Failure> {
        Ok(match body {
            DraftBody::Text(text) => request.body(text.clone()),
            DraftBody::Json(json) => request.body(self.revealed_json(json).await?.to_string()),
            DraftBody::Form(pairs) => {
                let revealed = self.revealed(pairs, access).await?;
                request.body(encoded(&revealed, encode_redacted))
            }
            DraftBody::File { path } => {
                let (file, length) = self.open(path).await?;
                let body = reqwest::Body::wrap_stream(ReaderStream::new(file.take(length)));
                request.header(CONTENT_LENGTH, length).body(body)
            }
            DraftBody::Multipart(parts) => {
                let mut form = multipart::Form::new();
                for (name, part) in parts {
                    let part = match part {
                        DraftPart::Text(text) => multipart::Part::text(self.reveal(text, access).await?),
                        DraftPart::File { path, content_type, file_name } => {
                            let (file, length) = self.open(path).await?;
                            let body = reqwest::Body::wrap_stream(ReaderStream::new(file.take(length)));
                            let part = multipart::Part::stream_with_length(body, length).file_name(file_name.clone());
                            part.mime_str(content_type).map_err(|_| {
                                Failure::new(Code::Rejected, format!("`{content_type}` is not a valid content type"))
                            })?
                        }
                    };
                    form = form.part(name.clone(), part);
                }
                request.multipart(form)
            }
        })
    }

    async fn open(&self, path: &std::path::Path) -> Result<(tokio::fs::File, u64), Failure> {
        let opened = input_file::private(&path.to_string_lossy(), self.invocation, self.context).await?;
        Ok((tokio::fs::File::from_std(opened.file), opened.bytes))
    }
}

fn header_value(name: &HeaderName, text: &str, placed: &PlacedValue) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_bytes(text.as_bytes()).map_err(|_| match placed {
        PlacedValue::Text(_) => Failure::new(Code::Rejected, format!("the value of the header `{name}` is not valid")),
        secret => {
            let reason = format!("the value of `{}` is not valid in a header", secret.redacted());
            Failure::new(Code::SecretMissing, reason).hint("a human must set the secret again, as one line")
        }
    })?;
    value.set_sensitive(placed.is_secret());
    Ok(value)
}
