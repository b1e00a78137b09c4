//! Evaluates the jq expressions of a request over the body of a response.

use ground::base::jq_pool::Query;
use jq::select::{self, SelectError};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::call::HttpCall;
use super::{Code, Failure, ResponseFacts};

/// Returns what `expression` finds in `data`, with `$status` and `$headers` of `facts`.
pub(super) async fn evaluate(
    call: &HttpCall<'_>,
    expression: &str,
    data: &Value,
    facts: Option<&ResponseFacts>,
) -> Result<Value, Failure> {
    let jq = &call.context.jq;
    // A cancellation drops the evaluation, which stops it.
    with_query(call, expression, data, facts, async |query| jq.select(query, &CancellationToken::new()).await).await
}

/// Like [`evaluate`]; also returns what `expression` asks for and `data` does not have, in a sentence each.
pub(super) async fn evaluate_checked(
    call: &HttpCall<'_>,
    expression: &str,
    data: &Value,
    facts: Option<&ResponseFacts>,
) -> Result<(Value, Vec<String>), Failure> {
    let jq = &call.context.jq;
    let checked =
        with_query(call, expression, data, facts, async |query| jq.checked(query, &CancellationToken::new()).await);
    checked.await.map(|checked| (select::one_value(checked.values), checked.missing))
}

async fn with_query<T>(
    call: &HttpCall<'_>,
    expression: &str,
    data: &Value,
    facts: Option<&ResponseFacts>,
    perform: impl AsyncFnOnce(Query<'_>) -> Result<T, SelectError>,
) -> Result<T, Failure> {
    let (status, headers) = ResponseFacts::values(facts);
    let max_bytes = call.context.config.executor.output_bytes;
    let shared = call.invocation.variables(expression);
    let mut variables = vec![("$status", &status), ("$headers", &headers)];
    variables.extend(shared.iter().map(|(name, value)| (*name, value)));
    let query = Query { expression, data, variables: &variables, max_bytes };
    call.until_cancelled(async {
        perform(query).await.map_err(|error| Failure::new(Code::SelectFailed, error.to_string()))
    })
    .await
}
