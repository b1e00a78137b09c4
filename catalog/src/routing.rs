//! Routing: whether what people say finds the subtool that they mean.
//!
//! A file of requests has one JSON object a line: `{"query": "who wrote this line", "subtools": ["git_blame"]}`. Several
//! names mean that each of them would do.

use search::{LearnedRequests, Unusable};
use serde::{Deserialize, Serialize};

use listing::Listing;

/// How many of the best hits a model is given with their schemas.
const NEAR: usize = 3;
/// How many hits a model looks through that looks further.
const FAR: usize = 10;

/// What a person would ask for, and which subtools do it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutingRequest {
    pub query: String,
    /// The language of the query, such as `en`; only for the report.
    #[serde(default)]
    pub language: Option<String>,
    pub subtools: Vec<String>,
}

/// How well requests find their subtools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RoutingReport {
    pub requests: usize,
    /// How many find a right subtool first, among the best three, and among the best ten.
    pub first: usize,
    pub among_three: usize,
    pub among_ten: usize,
    /// Those that do not find it first.
    pub wrong: Vec<WrongRoute>,
}

/// A request that finds something else first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrongRoute {
    pub query: String,
    pub wanted: Vec<String>,
    /// The best three.
    pub found: Vec<String>,
}

/// Reads a file of requests; on failure returns the number of the line and what is wrong with it.
pub fn parse(text: &str) -> Result<Vec<RoutingRequest>, (usize, serde_json::Error)> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    lines.map(|(line, number)| serde_json::from_str(line).map_err(|error| (number, error))).collect()
}

/// Searches for each request, without anything learned from past ones.
pub fn evaluate(listing: &Listing, requests: &[RoutingRequest]) -> Result<RoutingReport, Unusable> {
    let mut report = RoutingReport { requests: requests.len(), ..RoutingReport::default() };
    for request in requests {
        let hits = listing.search(&request.query, &LearnedRequests::default())?;
        let mut found: Vec<_> =
            hits.iter().take(FAR).map(|hit| listing.name(hit.document)).collect::<Result<_, Unusable>>()?;
        let place = found.iter().position(|name| request.subtools.contains(name));
        report.among_three += usize::from(place.is_some_and(|place| place < NEAR));
        report.among_ten += usize::from(place.is_some());
        if place == Some(0) {
            report.first += 1;
        } else {
            found.truncate(NEAR);
            let (query, wanted) = (request.query.clone(), request.subtools.clone());
            report.wrong.push(WrongRoute { query, wanted, found });
        }
    }
    Ok(report)
}
