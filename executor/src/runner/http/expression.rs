//! Evaluates the jq expressions of a request over the body of a response.

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::call::HttpCall;
use super::{Code, Failure, ResponseFacts};
use crate::base::jq_pool::Query;

/// Returns what `expression` finds in `data`, with `$status` and `$headers` of `facts`.
pub(super) async fn evaluate(
    call: &HttpCall<'_>,
    expression: &str,
    data: &Value,
    facts: Option<&ResponseFacts>,
) -> Result<Value, Failure> {
    let (status, headers) = ResponseFacts::values(facts);
    let max_bytes = call.context.config.executor.output_bytes;
    let shared = call.invocation.variables(expression);
    let mut variables = vec![("$status", &status), ("$headers", &headers)];
    variables.extend(shared.iter().map(|(name, value)| (*name, value)));
    let query = Query { expression, data, variables: &variables, max_bytes };
    call.until_cancelled(async {
        // A cancellation drops this future, which stops the evaluation.
        let selected = call.context.jq.select(query, &CancellationToken::new()).await;
        selected.map_err(|error| Failure::new(Code::SelectFailed, error.to_string()))
    })
    .await
}
