//! Comparisons in `confirm.when` that tell nothing: then a human is always asked, or never.

use catalog::Subtool;
use catalog::check::declared_types;
use definition::Confirm;
use ground::base::template::field_uses::{FieldComparison, FieldUses};

use super::{Finding, Level, finding};

pub(super) fn check(subtool: &Subtool, findings: &mut Vec<Finding>) {
    let Some(Confirm::When(condition)) = &subtool.definition.confirm else { return };
    let FieldUses { comparisons, impossible, .. } = FieldUses::of(condition);
    let never = impossible.into_iter().map(|why| format!("{why}: that is the same for every input"));
    let of_fields = comparisons.into_iter().filter_map(|FieldComparison { field, value, types }| {
        let declared = declared_types(&subtool.definition.input, &field).filter(|declared| !declared.is_empty())?;
        let names: Vec<_> = declared.iter().map(|of| of.name()).collect();
        let is_possible = types.iter().any(|wanted| declared.contains(wanted));
        (!is_possible).then(|| {
            format!("`input.{field}` is compared with `{value}`, which it cannot be: it is {}", names.join(" or "))
        })
    });
    let messages: Vec<_> = of_fields.chain(never).collect();
    let error = |message| finding(subtool, Level::Error, "about-nothing", "confirm.when", message);
    findings.extend(messages.into_iter().map(error));
}
