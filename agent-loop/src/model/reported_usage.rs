//! What a task says that it spent on models. A remote agent says what it likes: only what can be true counts.

use serde_json::{Map, Value};

/// The most tokens or requests, and the highest cost, that one task can report. More counts as this much: that ends every
/// budget, and sums of it remain numbers.
const MAX_COUNT: u64 = 1 << 50;
const MAX_COST: f64 = 1e12;

/// A whole number that is not negative.
pub fn count(usage: &Value, key: &str) -> Option<u64> {
    usage[key].as_u64().map(|count| count.min(MAX_COUNT))
}

/// A cost that is a number and not negative.
pub fn cost(usage: &Value) -> Option<f64> {
    usage["cost"].as_f64().filter(|cost| cost.is_finite() && *cost >= 0.0).map(|cost| cost.min(MAX_COST))
}

/// The part of a reported usage that counts. `None` if it reports no usage at all.
pub fn checked(usage: &Value) -> Option<Value> {
    let reported = usage.as_object()?;
    let mut checked = Map::new();
    for key in ["requests", "input_tokens", "cached_tokens", "output_tokens"] {
        if reported.contains_key(key) {
            checked.insert(key.to_owned(), count(usage, key).unwrap_or(0).into());
        }
    }
    if reported.contains_key("cost") {
        checked.insert("cost".to_owned(), cost(usage).unwrap_or(0.0).into());
    }
    Some(checked.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::conversation::{TaskSpending, TokenUsage};

    #[test]
    fn only_what_can_be_true_counts() {
        let usage = json!({"requests": 3, "input_tokens": 5, "cached_tokens": 0, "output_tokens": 7, "cost": 0.25});
        assert_eq!(checked(&usage), Some(usage.clone()));
        let wrong =
            json!({"requests": "4", "input_tokens": -1_000_000, "output_tokens": 1.5, "cost": -100.0, "x": "y"});
        let nothing = json!({"requests": 0, "input_tokens": 0, "output_tokens": 0, "cost": 0.0});
        assert_eq!(checked(&wrong), Some(nothing));
        let huge = json!({"input_tokens": u64::MAX, "cost": f64::MAX});
        assert_eq!(checked(&huge), Some(json!({"input_tokens": MAX_COUNT, "cost": MAX_COST})));
        for cost in [json!("NaN"), json!(null), json!([1.0]), json!(f64::NAN)] {
            assert_eq!(checked(&json!({"cost": cost})), Some(json!({"cost": 0.0})), "{cost}");
        }
        for none in [json!(null), json!("5"), json!([5]), json!(-1)] {
            assert_eq!(checked(&none), None, "{none}");
        }
        let task = protocol::task::TaskId::new();
        for result in [json!({"_meta": {"usage": wrong}}), json!({"error": {"details": {"usage": wrong}}})] {
            let spent = TaskSpending::of(task, &result);
            assert_eq!(spent, Some(TaskSpending { task, usage: TokenUsage::default(), cost: 0.0 }), "{result}");
        }
    }
}
